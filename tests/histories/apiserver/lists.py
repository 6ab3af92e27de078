"""Lists, page by page, as of one revision."""

import base64
import binascii
import re
from typing import Any, Final

import msgspec

from tests.histories.apiserver.calls import Call
from tests.histories.apiserver.kinds import Kind
from tests.histories.apiserver.refusals import bad_request, expired
from tests.histories.apiserver.selectors import everything, selection
from tests.histories.apiserver.store import Key, Store, Version

_INDEX: Final = re.compile(r"(?:^|,)spec\.nodeName==?([^,]*)")
_TEXT: Final = "The provided continue parameter is too old to display a consistent list result."


class _Token(msgspec.Struct):
    """A continue token; a `revision` below 1 means the current one."""

    revision: int
    namespace: str
    name: str


def list_objects(store: Store, call: Call) -> bytes:
    """Return one page.

    Raises:
        Refusal: a selector or token is malformed, or the token is too old.
    """
    kind, options = call.place.kind, call.options
    matches = selection(kind, options.get("fieldSelector", ""), options.get("labelSelector", ""))
    limit = int(options.get("limit") or 0)
    revision, begin = _start(store, options.get("continue", ""))
    collection = store.of(kind)
    rest = [
        (key, stored)
        for key, stored in collection.ordered(revision, call.place.namespace)
        if begin is None or key > begin
    ]
    index = _INDEX.search(options.get("fieldSelector", "")) if kind.plural == "pods" else None
    if index is not None and begin is None:  # the watch cache reads no others for a first page
        node = index[1]
        rest = [each for each in rest if each[1].object["spec"].get("nodeName", "") == node]
    meta: dict[str, Any] = {"resourceVersion": str(revision)}
    if matches is everything:
        found = rest[:limit] if limit else rest
    else:
        found = [each for each in rest if matches(each[1].object)]
        found = found[:limit] if limit else found
    # There is a next page if there are more objects, also if none of them is selected.
    if limit and len(found) == limit and found[-1][0] != rest[-1][0]:
        meta["continue"] = _token(revision, found[-1][0])
        if matches is everything:
            meta["remainingItemCount"] = len(rest) - limit
    return _page(kind, meta, [stored for _, stored in found], partial=call.partial)


def _start(store: Store, token: str) -> tuple[int, Key | None]:
    if not token:
        return store.revision, None
    try:
        begin = msgspec.json.decode(base64.urlsafe_b64decode(token), type=_Token)
    except (msgspec.DecodeError, binascii.Error) as error:
        raise bad_request("continue key is not valid") from error
    key = (begin.namespace, begin.name)
    if begin.revision < 1:
        return store.revision, key
    if begin.revision < store.compacted:
        raise expired(_TEXT, _token(-1, key))
    return begin.revision, key


def _token(revision: int, key: Key) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(_Token(revision, *key))).decode()


def _page(kind: Kind, meta: dict[str, Any], found: list[Version], *, partial: bool) -> bytes:
    name, api_version = f"{kind.name}List", kind.api_version
    if partial:
        name, api_version = "PartialObjectMetadataList", "meta.k8s.io/v1"
        items = [stored.partial for stored in found]
    elif kind.strategy.is_custom:
        items = [stored.body for stored in found]
    else:
        # Items of built-in kinds have no kind and apiVersion; every body begins with both.
        head = len(msgspec.json.encode({"kind": kind.name, "apiVersion": api_version}))
        items = [b"{" + stored.body[head:] for stored in found]
    top = msgspec.json.encode({"kind": name, "apiVersion": api_version, "metadata": meta})
    return b'%b,"items":[%b]}' % (top[:-1], b",".join(items))
