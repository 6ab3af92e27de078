"""Sends the same calls to a real API server and to the model of it, and compares the answers.

UIDs, resourceVersions and generated names differ between the two. Each pair is noted when an answer
shows it; then requests of the model are translated for the real server, and its answers back. So
they are compared too: a resourceVersion has exactly one partner, and both orders are the same.
"""

import http.client
import json
import ssl
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from bindery.kube.http.requests import ApiRequest
from bindery.kube.http.retry import Repeat
from tests.histories.apiserver.server import ModelApiServer
from tests.histories.apiserver.watches import Watch

_TIMES: Final = frozenset(
    [
        "creationTimestamp",
        "deletionTimestamp",
        "lastTransitionTime",
        "lastPhaseTransitionTime",
        "disruptedPods",
    ]
)
_LEFT_OUT: Final = frozenset(("managedFields", "daemonEndpoints", "nodeInfo"))
_STAMPS: Final = ("creationTimestamp", "deletionTimestamp")
_NOT_READY: Final = "storage is (re)initializing"
"""The answer for a kind whose definition is new."""
_DELIVERY_S: Final = 60.0
_WATCHES_LAST_S: Final = 6 * 3600
"""Without a timeout, kube-apiserver ends a watch after 30 to 60 minutes."""


class MismatchError(AssertionError):
    """The model and the real API server differ."""


@dataclass(frozen=True)
class Asked:
    """One request, with the model's names."""

    method: str
    target: str
    body: Any = None
    content_type: str = "application/json"
    accept: str = "application/json"

    def request(self) -> ApiRequest:
        """Return the request for the model."""
        body = None if self.body is None else json.dumps(self.body).encode()
        return ApiRequest(
            "", self.method, "", self.target, Repeat.UNSENT, self.accept, body, self.content_type
        )


@dataclass
class Partners:
    """Words of the model and their partners on the real server."""

    real: dict[str, str] = field(default_factory=dict)
    model: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    """resourceVersion of the real server -> that of the model."""
    real_versions: dict[str, str] = field(default_factory=dict)
    stamps: dict[tuple[str, str, str], str] = field(default_factory=dict)
    """Name, time of the model and its field -> the time that the real server has set there.

    A write of another time than the stored one is a write, though its time is not used.
    """

    def note(self, model: Mapping[str, Any], real: Mapping[str, Any]) -> None:
        """Note the partners in the metadata of one object."""
        for name in ("uid", "name"):
            ours, theirs = str(model.get(name, "")), str(real.get(name, ""))
            if ours and theirs and ours != theirs and ours not in self.real:
                self.real[ours], self.model[theirs] = theirs, ours
        for name in _STAMPS:
            if model.get(name) and real.get(name):
                self.stamps[str(model.get("uid")), name, model[name]] = real[name]
        self.note_version(model.get("resourceVersion", ""), real.get("resourceVersion", ""))

    def note_version(self, model: str, real: str) -> None:
        """Note the partner of a resourceVersion of an object."""
        if model and real:
            known = self.versions.setdefault(real, model)
            known_real = self.real_versions.setdefault(model, real)
            if (known, known_real) != (model, real):
                raise MismatchError(f"version {real} is {model}, and was {known}, {known_real}")

    def check_order(self) -> None:
        """Raise MismatchError unless both orders of the resourceVersions are the same."""
        pairs = sorted((int(model), int(real)) for real, model in self.versions.items())
        reals = [real for _, real in pairs]
        if reals != sorted(reals):
            raise MismatchError("the resourceVersions have another order")

    def for_real(self, value: Any, key: str = "") -> Any:
        """Return a value of a request to the model as the real server needs it."""
        if isinstance(value, dict):
            uid = value.get("uid")
            kept = {
                name: self.stamps.get((uid, name, value[name]))
                for name in _STAMPS
                if isinstance(uid, str) and isinstance(value.get(name), str)
            }
            return {
                self.real.get(name, name): kept.get(name) or self.for_real(each, name)
                for name, each in value.items()
            }
        if isinstance(value, list):
            return [self.for_real(each) for each in value]
        if isinstance(value, str):
            table = self.real_versions if key == "resourceVersion" else self.real
            return table.get(value, value)
        return value

    def target_for_real(self, target: str) -> str:
        """Return the path of a request to the model as the real server needs it."""
        path, _, query = target.partition("?")
        parts = [self.real.get(part, part) for part in path.split("/")]
        return "/".join(parts) + (f"?{query}" if query else "")

    def of_real(self, value: Any, key: str = "") -> Any:
        """Return a value of the real server with the words of the model."""
        if isinstance(value, dict):
            return {
                self.model.get(name, name): self.of_real(each, name) for name, each in value.items()
            }
        if isinstance(value, list):
            return [self.of_real(each) for each in value]
        if isinstance(value, str):
            table = self.versions if key == "resourceVersion" else self.model
            return table.get(value, value)
        return value


def comparable(value: Any, *, is_custom: bool, key: str = "") -> Any:
    """Return an object without times and managedFields.

    Of a built-in kind also without empty values: Kubernetes leaves some out and writes others.
    """
    if key in _TIMES:
        return "TIME" if value else None
    if isinstance(value, dict):
        kept = {
            name: comparable(each, is_custom=is_custom, key=name)
            for name, each in value.items()
            if name not in _LEFT_OUT
        }
        return {
            name: each
            for name, each in kept.items()
            if each is not None and (is_custom or each not in ("", [], {}))
        }
    if key == "finalizers":  # those of namespaces have no fixed order
        return sorted(value)
    if isinstance(value, list):
        return [comparable(each, is_custom=is_custom) for each in value]
    return value


class RealServer:
    """A connection to kube-apiserver, and its watches."""

    def __init__(self, url: str, token: str, authority: str) -> None:
        self._host = urlsplit(url).netloc
        self._token = token
        self._context = ssl.create_default_context(cadata=authority)
        self._connection = self._connect()

    def _connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self._host, context=self._context, timeout=60)

    def _headers(self, asked: Asked) -> dict[str, str]:
        return {
            "Authorization": f"Bearer {self._token}",
            "Accept": asked.accept,
            "Content-Type": asked.content_type,
        }

    def handle(self, asked: Asked) -> tuple[int, Any]:
        """Return status code and decoded body of the answer."""
        body = None if asked.body is None else json.dumps(asked.body)
        while True:
            self._connection.request(asked.method, asked.target, body, self._headers(asked))
            answer = self._connection.getresponse()
            value = json.loads(answer.read() or b"null")
            if answer.status != 429 or value.get("message") != _NOT_READY:
                return answer.status, value
            time.sleep(0.2)

    def watch(self, asked: Asked) -> "RealWatch":
        """Open a watch."""
        connection = self._connect()
        connection.request("GET", asked.target, None, self._headers(asked))
        return RealWatch(connection, connection.getresponse())


class RealWatch:
    """The lines of a watch of the real server, read by a thread."""

    def __init__(
        self, connection: http.client.HTTPSConnection, answer: http.client.HTTPResponse
    ) -> None:
        self.lines: list[Any] = []
        self.has_ended = False
        self._connection = connection
        self._thread = threading.Thread(target=self._read, args=(answer,), daemon=True)
        self._thread.start()

    def _read(self, answer: http.client.HTTPResponse) -> None:
        with suppress(OSError, ValueError, http.client.HTTPException, AttributeError):
            for line in answer:
                event = json.loads(line)
                if event["type"] != "BOOKMARK":
                    self.lines.append(event)
        self.has_ended = True

    def close(self) -> None:
        """End it."""
        if self._connection.sock is not None:
            self._connection.sock.shutdown(2)
        self._connection.close()
        self._thread.join(timeout=5)


class Sides:
    """Both servers, under the same calls."""

    def __init__(self, model: ModelApiServer, real: RealServer, seed: int) -> None:
        self.model = model
        self.real = real
        self.partners = Partners()
        self.calls = 0
        self.refused = 0
        self.lines = 0
        self.reasons: Counter[str] = Counter()
        self._seed = seed
        self._watches: list[tuple[Asked, Watch, RealWatch]] = []
        self._owners: dict[str, list[Any]] = {}
        """UID -> the managedFields of the real server's last answer."""

    def ask(self, asked: Asked) -> tuple[int, Any]:
        """Send a call to both; return the model's answer.

        Raises:
            MismatchError: the answers differ.
        """
        translated = Asked(
            asked.method,
            self.partners.target_for_real(asked.target),
            self.partners.for_real(asked.body),
            asked.content_type,
            asked.accept,
        )
        return self.ask_apart(asked, translated)

    def ask_apart(self, asked: Asked, translated: Asked) -> tuple[int, Any]:
        """Send `asked` to the model and `translated` to the real server; see `ask`."""
        self.calls += 1
        answer = self.model.handle(asked.request(), "test")
        ours = json.loads(answer.body)
        status, theirs = self.real.handle(translated)
        reason = ours.get("reason", "") if answer.status >= 400 else ""
        if answer.status >= 400:
            self.refused += 1
            self.reasons[f"{answer.status} {reason}"] += 1
        wanted = theirs.get("reason", "") if status >= 400 else ""
        if (answer.status, reason) != (status, wanted):
            self._fail(asked, ours, theirs)
        if status < 400:
            try:
                self._compare(ours, theirs)
            except MismatchError as error:
                self._fail(asked, ours, theirs, str(error))
        return answer.status, ours

    def _compare(self, ours: Any, theirs: Any) -> None:
        if "items" in ours:
            self._compare_list(ours, theirs)
        elif ours.get("kind") == "Status":
            if theirs.get("kind") != "Status":
                raise MismatchError("the model answers with a Status")
        else:
            self._follow_owners(ours["metadata"], theirs["metadata"])
            self.partners.note(ours["metadata"], theirs["metadata"])
            self._same(ours, theirs, is_custom="bindery" in ours["apiVersion"])

    def _follow_owners(self, ours: Any, theirs: Any) -> None:
        """Let the model write, too, if the real server did only because a field has more owners.

        The model has no managedFields. Some field that the call sets to its stored value was set by
        another subresource before.
        """
        owners = _owners(theirs)
        uid = theirs.get("uid", "")
        before, self._owners[uid] = self._owners.get(uid), owners
        known = self.partners.real_versions.get(ours.get("resourceVersion", ""))
        version = theirs.get("resourceVersion")
        is_own_write = known not in (None, version) and version not in self.partners.versions
        if is_own_write and before not in (None, owners):
            revision = int(ours["resourceVersion"])
            last = next(one for one in reversed(self.model.store.log) if one.revision == revision)
            last.version.is_final = False
            kind, key, value = last.kind, last.key, last.version.copy()
            written = self.model.store.put(kind, key, value, last.writer)
            ours["resourceVersion"] = str(written.revision)

    def _compare_list(self, ours: Any, theirs: Any) -> None:
        is_custom = "bindery" in ours["apiVersion"]
        theirs = {**theirs, "items": theirs["items"] or []}  # null: metadata of built-in kinds
        if len(ours["items"]) != len(theirs["items"]):
            raise MismatchError(f"{len(ours['items'])} and {len(theirs['items'])} objects")
        for our, their in zip(ours["items"], theirs["items"], strict=True):
            self.partners.note(our["metadata"], their["metadata"])
            self._same(our, their, is_custom=is_custom)
        tokens = [bool(each["metadata"].get("continue")) for each in (ours, theirs)]
        left = [each["metadata"].get("remainingItemCount") for each in (ours, theirs)]
        if len(set(tokens)) > 1 or len(set(left)) > 1:
            raise MismatchError(f"another page: {tokens}, {left}")
        if tokens[0]:
            token = ours["metadata"]["continue"]
            self.partners.real[token] = theirs["metadata"]["continue"]

    def _same(self, ours: Any, theirs: Any, *, is_custom: bool) -> None:
        our = comparable(ours, is_custom=is_custom)
        their = comparable(self.partners.of_real(theirs), is_custom=is_custom)
        if our != their:
            raise MismatchError("\n".join(differences(our, their, "")))

    def watch(self, path: str, query: str = "", accept: str = "application/json") -> None:
        """Watch `path` at both from now on; `check_watches` compares the lines."""
        _, listed = self.real.handle(Asked("GET", f"{path}?limit=1"))
        options = f"allowWatchBookmarks=true&timeoutSeconds={_WATCHES_LAST_S}&{query}"
        target = f"{path}?watch=true&{options}&resourceVersion="
        real = self.real.watch(
            Asked("GET", target + listed["metadata"]["resourceVersion"], accept=accept)
        )
        asked = Asked("GET", f"{target}{self.model.store.revision}", accept=accept)
        self._watches.append((asked, self.model.watch(asked.request(), "test"), real))

    def check_watches(self) -> None:
        """Compare all lines since the last check."""
        for each in self._watches:
            self.lines += self._check_watch(*each)

    def _check_watch(self, asked: Asked, model: Watch, real: RealWatch) -> int:
        lines = [json.loads(line) for line in model.lines]
        model.lines.clear()
        deadline = time.monotonic() + _DELIVERY_S
        while len(real.lines) < len(lines) and time.monotonic() < deadline and not real.has_ended:
            time.sleep(0.01)
        theirs, real.lines[:] = real.lines[: len(lines)], real.lines[len(lines) :]
        if len(theirs) < len(lines):
            names = [(each["type"], each["object"]["metadata"]["name"]) for each in lines]
            got = [(each["type"], each["object"]["metadata"]["name"]) for each in theirs]
            text = self._history(lines)
            what = "has ended the watch" if real.has_ended else "sends fewer lines"
            self._fail(asked, names, got, f"the real server {what}\n{text}")
        for ours, their in zip(lines, theirs, strict=True):
            try:
                self._compare_events(ours, their)
            except MismatchError as error:
                self._fail(asked, ours, their, str(error))
        return len(lines)

    def check_silence(self) -> None:
        """Fail if the real server has sent lines that the model has not."""
        for asked, _, real in self._watches:
            if real.lines:
                self._fail(asked, "nothing", real.lines[:3], "the real server sends more lines")

    def close(self) -> None:
        """End the watches."""
        for _, model, real in self._watches:
            model.close()
            real.close()

    def _compare_events(self, ours: Any, theirs: Any) -> None:
        if ours["type"] != theirs["type"]:
            raise MismatchError("another type of event")
        our, their = ours["object"], theirs["object"]
        self.partners.note(our["metadata"], their["metadata"])
        self._same(our, their, is_custom="bindery" in our["apiVersion"])

    def _history(self, lines: list[Any]) -> str:
        names = {each["object"]["metadata"]["name"] for each in lines}
        last = [each for each in self.model.store.log[-150:] if each.key[1] in names]
        return "\n".join(
            f"{each.revision} {each.key} {each.type} {each.writer}: "
            + "; ".join(differences(each.before and each.before.object, each.version.object, ""))[
                :600
            ]
            for each in last[-12:]
        )

    def _fail(self, asked: Asked, ours: Any, theirs: Any, text: str = "") -> None:
        raise MismatchError(
            f"seed {self._seed}, call {self.calls}: {asked.method} {asked.target}\n"
            f"  {asked.content_type}, {asked.accept}: {json.dumps(asked.body)}\n"
            f"{text}\nmodel: {json.dumps(ours)}\nreal:  {json.dumps(theirs)}"
        )


def _owners(metadata: Any) -> list[Any]:
    """Return managedFields without times."""
    return [
        {name: each for name, each in one.items() if name != "time"}
        for one in metadata.get("managedFields") or ()
    ]


def differences(ours: Any, theirs: Any, path: str) -> Iterator[str]:
    """Yield the paths at which two values differ."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in sorted(ours.keys() | theirs.keys()):
            yield from differences(ours.get(name), theirs.get(name), f"{path}.{name}")
    elif ours != theirs:
        yield f"{path}: model {ours!r}, real {theirs!r}"
