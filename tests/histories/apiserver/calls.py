"""Calls: requests as the model reads them, with their path, options and body."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

import msgspec

from bindery.kube.http.requests import ApiRequest
from tests.histories.apiserver.kinds import Kind, Plain, words
from tests.histories.apiserver.refusals import NotModelledError, bad_request, no_such_path

_OPTIONS: Final = words(
    """
    watch limit continue labelSelector fieldSelector resourceVersion allowWatchBookmarks
    timeoutSeconds dryRun fieldManager
    """
)
_decode = msgspec.json.Decoder().decode


@dataclass(frozen=True)
class Place:
    """What a path leads to."""

    kind: Kind
    namespace: str
    name: str
    subresource: str


class Paths:
    """The paths of all served kinds."""

    def __init__(self, kinds: tuple[Kind, ...]) -> None:
        self.kinds = kinds
        self._by_path = {(kind.group, kind.version, kind.plural): kind for kind in kinds}
        self.place = lru_cache(maxsize=4096)(self._place)

    def _place(self, path: str) -> Place:
        """Return what `path` leads to.

        Raises:
            Refusal: nothing.
        """
        parts = [unquote(part) for part in path.strip("/").split("/")]
        if parts[0] == "api" and len(parts) > 2:
            group, version, rest = "", parts[1], parts[2:]
        elif parts[0] == "apis" and len(parts) > 3:
            group, version, rest = parts[1], parts[2], parts[3:]
        else:
            raise no_such_path()
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
            namespace, rest = rest[1], rest[2:]
        kind = self._by_path.get((group, version, rest[0]))
        if kind is None or len(rest) > 3 or (namespace and not kind.namespaced):
            raise no_such_path()
        name = rest[1] if len(rest) > 1 else ""
        subresource = rest[2] if len(rest) > 2 else ""
        if subresource and subresource not in kind.subresources:
            raise no_such_path()
        if name and kind.namespaced and not namespace:
            raise no_such_path()
        return Place(kind, namespace, name, subresource)


@dataclass(frozen=True)
class Call:
    """One request."""

    caller: str
    verb: str
    place: Place
    options: Mapping[str, str]
    content_type: str
    body: bytes | None
    partial: bool
    is_dry: bool = field(default=False)

    @property
    def key(self) -> tuple[str, str]:
        """The key of the object."""
        return self.place.namespace, self.place.name

    def decoded(self) -> Any:
        """Return the decoded body.

        Raises:
            Refusal: there is none, or it is malformed.
        """
        if self.body is None:
            raise bad_request("the body is missing")
        try:
            return _decode(self.body)
        except msgspec.DecodeError as error:
            raise bad_request(f"the body is malformed: {error}") from error

    def object(self) -> Plain:
        """Return the decoded body, which must be an object."""
        value = self.decoded()
        if not isinstance(value, dict):
            raise bad_request("the body is no object")
        return value


_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@lru_cache(maxsize=1024)
def _options(query: str) -> Mapping[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    if options.keys() - _OPTIONS:
        raise NotModelledError(f"options {sorted(options.keys() - _OPTIONS)}")
    return options


def read_call(request: ApiRequest, caller: str, paths: Paths) -> Call:
    """Return the call of `request`.

    Raises:
        Refusal: there is no such path, or it cannot be used in this way.
    """
    path, _, query = request.target.partition("?")
    place = paths.place(path)
    if request.content_type == "application/apply-patch+yaml":
        raise NotModelledError("server-side apply")
    options = _options(query)
    verb = _VERBS.get(request.method)
    if verb is None:
        verb = "get" if place.name else "watch" if options.get("watch") == "true" else "list"
    if verb == "delete" and not place.name:
        raise NotModelledError("deletion of a collection")
    dry_run = options.get("dryRun", "")
    if dry_run not in ("", "All"):
        raise bad_request(f"invalid dryRun: {dry_run}")
    return Call(
        caller,
        verb,
        place,
        options,
        request.content_type,
        request.body,
        "PartialObjectMetadata" in request.accept,
        bool(dry_run),
    )
