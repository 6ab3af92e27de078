"""The model of the API server: requests in, answers out, one after the other.

Every call is atomic. Nothing happens by itself: garbage collection, the end of namespaces and
bookmarks are steps that a world takes (`garbage`, `Watch.bookmark`).
"""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from bindery.kube.http.carrier import Answer
from bindery.kube.http.requests import ApiRequest
from tests.histories.apiserver.builtinkinds import BUILT_IN
from tests.histories.apiserver.calls import Call, Paths, read_call
from tests.histories.apiserver.definitions import custom_kinds
from tests.histories.apiserver.deletion import Deleter, check_preconditions
from tests.histories.apiserver.discovery import discover, is_discovery
from tests.histories.apiserver.evictions import Evictions
from tests.histories.apiserver.kinds import Kind, Moment, Plain
from tests.histories.apiserver.lists import list_objects
from tests.histories.apiserver.pods import bind
from tests.histories.apiserver.refusals import (
    NotModelledError,
    Refusal,
    bad_request,
    not_found,
)
from tests.histories.apiserver.store import Store, Version, Writer
from tests.histories.apiserver.times import stamp
from tests.histories.apiserver.watches import Watch
from tests.histories.apiserver.writes import Writes

Refuse = Callable[[Call], Refusal | None]
"""Returns why a caller may not make a call; None: it may."""

_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_SUCCESS: Final = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
_FIRST_NAMESPACES: Final = ("default", "kube-system", "kube-public", "kube-node-lease")


class ModelApiServer:
    """The model. `store` has the objects and the log of all writes."""

    def __init__(
        self,
        now_s: Callable[[], float],
        chance: random.Random,
        kinds: Sequence[Kind] = (),
        *,
        refuse: Refuse | None = None,
        may: Callable[[str, Mapping[str, Any]], bool] = lambda _caller, _attributes: True,
    ) -> None:
        """Make a server with the four namespaces of a new cluster.

        Args:
            now_s: seconds since the epoch.
            chance: draws UIDs and generated names.
            kinds: custom kinds; by default those of `crds/`.
            refuse: refuses calls of a caller.
            may: the answer to a SelfSubjectAccessReview of a caller, by its `resourceAttributes`.
        """
        self.store = Store(now_s)
        self.paths = Paths((*BUILT_IN, *(kinds or custom_kinds())))
        self.refuse = refuse
        self.may = may
        self._now_s = now_s
        self._plurals = {kind.plural: kind for kind in self.paths.kinds}
        self._deleter = Deleter(self.store)
        self._writes = Writes(
            self.store, self._deleter, self._moment, chance, self._plurals["namespaces"]
        )
        self._evictions = Evictions(
            self.store, self._deleter, self._plurals["poddisruptionbudgets"]
        )
        self._verbs: dict[str, Callable[[Call], Answer]] = {
            "get": self._get,
            "list": lambda call: Answer(200, list_objects(self.store, call), None),
            "create": self._create,
            "update": lambda call: _answer(call, *self._writes.replace(call)),
            "patch": lambda call: _answer(call, *self._writes.patch(call)),
            "delete": self._delete,
        }
        for name in _FIRST_NAMESPACES:
            self.add("namespaces", {"metadata": {"name": name}})

    def handle(self, request: ApiRequest, caller: str) -> Answer:
        """Carry out a request of `caller`; return the answer, also if it is a refusal.

        Raises:
            NotModelledError: the request needs what the model does not have.
        """
        try:
            path = request.target.partition("?")[0]
            if request.method == "GET" and is_discovery(path):
                return Answer(200, msgspec.json.encode(discover(path, self.paths.kinds)), None)
            if path == _REVIEWS:
                return self._review(request, caller)
            call = read_call(request, caller, self.paths)
            self._check(call)
            if call.place.subresource and call.verb == "create":
                return self._act(call)
            return self._verbs[call.verb](call)
        except Refusal as refusal:
            return refusal.answer()

    def watch(self, request: ApiRequest, caller: str) -> Watch:
        """Open a watch.

        Raises:
            Refusal: the server answers with an error instead.
            NotModelledError: the request needs what the model does not have.
        """
        call = read_call(request, caller, self.paths)
        self._check(call)
        if call.verb != "watch":
            raise NotModelledError(f"a stream of {request.target}")
        return Watch(self.store, call)

    def kind(self, plural: str) -> Kind:
        """Return a kind."""
        return self._plurals[plural]

    def objects(self, plural: str) -> list[Mapping[str, Any]]:
        """Return the stored objects of a kind, by namespace and name; do not change them."""
        stored = self.store.of(self.kind(plural)).objects
        return [stored[key].object for key in sorted(stored)]

    def find(self, plural: str, namespace: str, name: str) -> Mapping[str, Any] | None:
        """Return a stored object; do not change it."""
        found = self.store.get(self.kind(plural), (namespace, name))
        return None if found is None else found.object

    def add(self, plural: str, value: Mapping[str, Any], caller: str = "world") -> Plain:
        """Create an object; return it. Raises `Refusal`."""
        kind = self.kind(plural)
        namespace = value.get("metadata", {}).get("namespace", "")
        head = {"kind": kind.name, "apiVersion": kind.api_version}
        place = self.paths.place(_path(kind, namespace))
        body = msgspec.json.encode({**head, **value})
        call = Call(caller, "create", place, {}, "application/json", body, partial=False)
        return self._writes.create(call)[1]

    def _check(self, call: Call) -> None:
        refusal = self.refuse(call) if self.refuse is not None else None
        if refusal is not None:
            raise refusal

    def _moment(self) -> Moment:
        return Moment(self._now_s(), stamp, self.find, self.objects)

    def _stored(self, call: Call) -> Version:
        found = self.store.get(call.place.kind, call.key)
        if found is None:
            raise not_found(call.place.kind.qualified, call.place.name)
        return found

    def _get(self, call: Call) -> Answer:
        stored = self._stored(call)
        return Answer(200, stored.partial if call.partial else stored.body, None)

    def _create(self, call: Call) -> Answer:
        if call.place.name:
            raise Refusal(405, "MethodNotAllowed", "the server does not allow this method")
        return _answer(call, *self._writes.create(call))

    def _delete(self, call: Call) -> Answer:
        deleted = self._deleter.by_call(call, self._now_s())
        return _answer(call, 200, _SUCCESS if deleted is None else deleted)

    def _act(self, call: Call) -> Answer:
        match call.place.subresource:
            case "binding":
                self._bind(call)
            case "eviction":
                self._evictions.evict(call, self._now_s())
            case _:
                raise Refusal(405, "MethodNotAllowed", "the server does not allow this method")
        return Answer(201, msgspec.json.encode({**_SUCCESS, "code": 201}), None)

    def _bind(self, call: Call) -> None:
        body, name = call.object(), call.place.name
        meta, target = body.get("metadata") or {}, body.get("target") or {}
        if meta.get("name", name) != name:
            raise bad_request("name in URL does not match name in Binding object")
        problems = []
        if target.get("kind") not in (None, "", "Node"):
            problems.append("target.kind: Unsupported value")
        if not target.get("name"):
            problems.append("target.name: Required value")
        if problems:
            raise Refusal(500, "", "; ".join(problems))  # as Kubernetes 1.36 answers
        stored = self._stored(call)
        wanted = {key: meta[key] for key in ("uid", "resourceVersion") if meta.get(key)}
        check_preconditions(call.place.kind, stored, wanted)
        pod = stored.copy()
        bind(pod, {**body, "metadata": meta}, name, stamp(self._now_s()))
        if not call.is_dry:
            self.store.put(call.place.kind, call.key, pod, Writer(call.caller, "create", "binding"))

    def _review(self, request: ApiRequest, caller: str) -> Answer:
        review = msgspec.json.decode(request.body or b"{}")
        attributes = review.get("spec", {}).get("resourceAttributes", {})
        status = {"allowed": self.may(caller, attributes)}
        return Answer(201, msgspec.json.encode({**review, "status": status}), None)


def _path(kind: Kind, namespace: str) -> str:
    root = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.version}"
    return f"{root}/namespaces/{namespace}/{kind.plural}" if namespace else f"{root}/{kind.plural}"


def _answer(call: Call, status: int, value: Mapping[str, Any]) -> Answer:
    if call.partial and value.get("kind") != "Status":
        return Answer(status, Version(dict(value), 0).partial, None)
    return Answer(status, msgspec.json.encode(value), None)
