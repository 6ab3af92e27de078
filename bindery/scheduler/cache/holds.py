"""Which unbound pods are spoken for: by a BindRequest, or by a commit that is being written.

A hold makes a pending pod count as Binding on its node. It ends when the request is finished
without the pod, is deleted, or could not be created. A pod that the request says is bound keeps its
hold until the pod itself shows its node: the two watches may arrive in any order.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bindery.api.bindrequest import Phase
from bindery.kube.objects import BindRequest
from bindery.scheduler.model.jobs import Uid

RequestKey = tuple[str, str]
"""Namespace and name of a BindRequest."""


@dataclass(frozen=True, slots=True)
class Hold:
    """One pod's place in a request."""

    node_name: str
    request: RequestKey


@dataclass(frozen=True, slots=True)
class Assumption:
    """A commit that is being written. `since`: seconds since the epoch."""

    pods: tuple[Uid, ...]
    since: float


def is_final(request: BindRequest) -> bool:
    """Return whether the binder is done with `request`."""
    return request.status.phase in (Phase.SUCCEEDED, Phase.FAILED)


def key_of(request: BindRequest) -> RequestKey:
    """Return the key of `request`."""
    return request.metadata.namespace, request.metadata.name


class Holds:
    """Pod UID -> Hold, and the requests that are known."""

    def __init__(self) -> None:
        self._holds: dict[Uid, Hold] = {}
        self.assumed: dict[RequestKey, Assumption] = {}
        """Commits whose request has not been seen in the watch yet."""
        self.requests: dict[RequestKey, BindRequest] = {}

    @property
    def has_live(self) -> bool:
        """Whether any request is being written or carried out."""
        return bool(self.assumed) or any(not is_final(r) for r in self.requests.values())

    def get(self, uid: Uid) -> Hold | None:
        """Return the hold on the pod `uid`."""
        return self._holds.get(uid)

    def assume(self, request: RequestKey, places: Iterable[tuple[Uid, str]], now: float) -> None:
        """Hold pods for a request that is about to be created; `places`: (pod, node name)."""
        held = tuple(places)
        self.assumed[request] = Assumption(tuple(uid for uid, _ in held), now)
        for uid, node_name in held:
            self._holds[uid] = Hold(node_name, request)

    def forget(self, request: RequestKey) -> Iterator[Uid]:
        """End the holds of a request that could not be created; yield the pods it frees."""
        assumption = self.assumed.pop(request, None)
        if assumption is not None and request not in self.requests:
            for uid in assumption.pods:
                yield from self._end(uid, request)

    def put(self, request: BindRequest) -> Iterator[Uid]:
        """Take in a request's state; yield the pods whose hold has changed."""
        key = key_of(request)
        self.assumed.pop(key, None)
        self.requests[key] = request
        final, bound = is_final(request), frozenset(request.status.bound_pods)
        for pod in request.spec.pods:
            uid = Uid(pod.pod_uid)
            if final and uid not in bound:
                yield from self._end(uid, key)
            elif uid not in self._holds:
                self._holds[uid] = Hold(pod.selected_node, key)
                yield uid

    def remove(self, request: BindRequest) -> Iterator[Uid]:
        """Forget a request that was deleted; yield the pods that it no longer holds."""
        key = key_of(request)
        self.requests.pop(key, None)
        bound = frozenset(request.status.bound_pods)
        for pod in request.spec.pods:
            if pod.pod_uid not in bound:
                yield from self._end(Uid(pod.pod_uid), key)

    def settle(self, uid: Uid) -> None:
        """Forget the hold on a pod that is bound now, or gone."""
        self._holds.pop(uid, None)

    def _end(self, uid: Uid, request: RequestKey) -> Iterator[Uid]:
        hold = self._holds.get(uid)
        if hold is not None and hold.request == request:
            del self._holds[uid]
            yield uid
