"""A carrier in memory that stores what is written and shows it to watches; it hardly checks it.

For tests of the components' arguments. `tests/histories/apiserver` is the model of an API server.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec

from bindery.kube.errors import SilentError, error_from_answer
from bindery.kube.http.carrier import Answer
from bindery.kube.http.requests import ApiRequest

Line = dict[str, Any]


class Shelf:
    """The objects of one cluster, by path. `calls` has every write with the time of the loop."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, str, str, bytes | None]] = []
        self.objects: dict[str, Line] = {}
        self._lines: list[tuple[str, Line]] = []
        """The path of a collection, and an event in it."""
        self._news = asyncio.Event()
        """Set at the next write."""

    def put(self, path: str, stored: Line, kind: str = "MODIFIED") -> Line:
        """Store an object and return it."""
        number = len(self._lines) + 1
        metadata = {"uid": f"uid-{number}", **stored.get("metadata", {})}
        metadata["resourceVersion"] = str(number)
        self.objects[path] = stored = {**stored, "metadata": metadata}
        self._lines.append((path.rpartition("/")[0], {"type": kind, "object": stored}))
        self._news.set()
        self._news = asyncio.Event()
        return stored

    def listed(self, path: str) -> list[Line]:
        """Return the objects of a collection, of all namespaces if it names none."""
        return [
            stored
            for each, stored in sorted(self.objects.items())
            if is_of(each.rpartition("/")[0], path)
        ]

    def read(self, request: ApiRequest) -> tuple[int, Any]:
        """Return status and object of the answer to a request that changes nothing."""
        path = request.target.partition("?")[0]
        if request.verb == "list":
            version = {"resourceVersion": str(len(self._lines))}
            return 200, {"metadata": version, "items": self.listed(path)}
        if path in self.objects:
            return 200, self.objects[path]
        is_discovery = path.count("/") < 4
        return (200, {"resources": []}) if is_discovery else (404, {"reason": "NotFound"})

    def write(self, request: ApiRequest, now_s: float) -> tuple[int, Any]:
        """Write what a request asks for; return status and object of the answer."""
        path = request.target.partition("?")[0]
        self.calls.append((now_s, request.method, path, request.body))
        body = msgspec.json.decode(request.body or b"{}")
        at, _, subresource = path.rpartition("/")
        if subresource in ("binding", "status"):
            path = at
        if request.verb == "create" and subresource != "binding":
            path += f"/{body['metadata']['name']}"
            if path in self.objects:
                return 409, {"reason": "AlreadyExists"}
            return 201, self.put(path, body, "ADDED")
        stored = self.objects.get(path)
        if stored is None:
            return 404, {"reason": "NotFound"}
        version = body.get("metadata", {}).get("resourceVersion")
        if version not in (None, stored["metadata"]["resourceVersion"]):
            return 409, {"reason": "Conflict"}
        if request.verb == "delete":
            self.put(path, stored, "DELETED")
            return 200, self.objects.pop(path)
        if subresource == "binding":
            body = {"spec": {"nodeName": body["target"]["name"]}}
        return 200, self.put(path, body if request.verb == "update" else merged(stored, body))

    async def follow(self, path: str, since: int) -> AsyncGenerator[bytes, None]:
        """Yield the events of a collection after the one of number `since`, without end."""
        while True:
            for collection, line in self._lines[since:]:
                since += 1
                if is_of(collection, path):
                    yield msgspec.json.encode(line)
            await self._news.wait()


class ShelfCarrier:
    """Carries the requests of one process to a shelf; a request takes `way_s`."""

    field_manager = "shelf"

    def __init__(self, shelf: Shelf, way_s: float = 0.01) -> None:
        self._shelf, self._way_s = shelf, way_s

    async def send(self, request: ApiRequest, timeout_s: float) -> Answer:
        """Send once and return the answer."""
        async with asyncio.timeout(timeout_s):
            await asyncio.sleep(self._way_s)
            if request.method == "GET":
                status, found = self._shelf.read(request)
            else:
                status, found = self._shelf.write(request, asyncio.get_running_loop().time())
            await asyncio.sleep(self._way_s)
        body = msgspec.json.encode(found)
        if status >= 400:
            raise error_from_answer(status, body, None)
        return Answer(status, body, None)

    async def stream(self, request: ApiRequest, idle_s: float) -> AsyncGenerator[bytes, None]:
        """Yield the lines of a watch."""
        path, _, query = request.target.partition("?")
        since = next(each for each in query.split("&") if each.startswith("resourceVersion="))
        async with aclosing(self._shelf.follow(path, int(since.partition("=")[2]))) as lines:
            while True:
                try:
                    async with asyncio.timeout(idle_s):
                        line = await anext(lines)
                except TimeoutError:
                    raise SilentError("nothing happens") from None
                yield line

    async def close(self) -> None:
        """Close nothing."""


def is_of(collection: str, wanted: str) -> bool:
    """Whether `wanted` is the path of this collection, or of its kind in all namespaces."""
    if collection == wanted:
        return True
    root, _, rest = collection.partition("/namespaces/")
    return bool(rest) and f"{root}/{rest.partition('/')[2]}" == wanted


def merged(stored: Any, patch: Any) -> Any:
    """Return `stored` with a merge patch."""
    if not isinstance(patch, dict) or not isinstance(stored, dict):
        return patch
    changed = {key: merged(stored.get(key, {}), value) for key, value in patch.items()}
    return {key: value for key, value in {**stored, **changed}.items() if value is not None}
