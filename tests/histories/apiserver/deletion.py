"""Deletion: preconditions, finalizers, grace periods, and the end of namespaces."""

from collections.abc import Mapping
from typing import Any, Final

from tests.histories.apiserver.calls import Call
from tests.histories.apiserver.kinds import Kind
from tests.histories.apiserver.pods import grace_s
from tests.histories.apiserver.refusals import bad_request, conflict, not_found
from tests.histories.apiserver.store import Key, Plain, Store, Version, Writer
from tests.histories.apiserver.times import parsed_s, stamp

ORPHAN: Final = "orphan"
FOREGROUND: Final = "foregroundDeletion"
_POLICIES: Final = {"Orphan": (ORPHAN,), "Foreground": (FOREGROUND,), "Background": ()}


class Deleter:
    """Deletes objects of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def by_call(self, call: Call, now_s: float) -> Plain | None:
        """Carry out a DELETE call; return the object for the answer, or None for a Status."""
        options = call.object() if call.body else {}
        kind = call.place.kind
        if self._store.get(kind, call.key) is None:
            raise not_found(kind.qualified, call.place.name)
        is_dry = call.is_dry or bool(options.get("dryRun"))
        writer = Writer(call.caller, "delete")
        deleted = self.delete(kind, call.key, options, writer, now_s, is_dry=is_dry)
        is_kept = (
            bool(deleted["metadata"].get("deletionTimestamp"))
            if is_dry
            else (self._store.get(kind, call.key) is not None)
        )
        return deleted if is_kept or kind.strategy.returns_deleted else None

    def delete(
        self,
        kind: Kind,
        key: Key,
        options: Mapping[str, Any],
        writer: Writer,
        now_s: float,
        *,
        is_dry: bool = False,
    ) -> Plain:
        """Delete an object as `DeleteOptions` ask, or mark it; return its last version.

        Raises:
            Refusal: a precondition does not hold, or an option is unknown.
        """
        stored = self._store.of(kind).objects[key]
        check_preconditions(kind, stored, options.get("preconditions") or {})
        policy = options.get("propagationPolicy")
        if policy is not None and policy not in _POLICIES:
            raise bad_request(f"invalid propagationPolicy {policy!r}")
        new = stored.copy()
        meta = new["metadata"]
        if kind.plural == "namespaces" and (
            not meta.get("deletionTimestamp") or new["spec"].get("finalizers")
        ):
            return self._end_namespace(kind, stored, policy, writer, now_s, is_dry=is_dry)
        given = options.get("gracePeriodSeconds")
        is_graceful = kind.strategy.is_graceful and meta.get("deletionGracePeriodSeconds") != 0
        grace = _mark_gracefully(new, given, now_s) if is_graceful else 0
        if grace is None:
            return stored.object  # it is being deleted already, and stays so
        had_finalizers = bool(meta.get("finalizers"))
        if kind.strategy.is_collected:
            _choose_finalizers(meta, policy)
        if not is_graceful:
            if not meta.get("finalizers"):
                if had_finalizers and (options.get("preconditions") or {}).get("resourceVersion"):
                    # Kubernetes 1.36 loses the version when the policy removes finalizers.
                    raise conflict(kind.qualified, key[1], "Precondition failed: ResourceVersion")
                return new if is_dry else self._store.remove(kind, key, writer).object
            _mark(meta, now_s)
        if is_dry:
            return new
        written = self._store.put(kind, key, new, writer)
        if grace or meta.get("finalizers"):
            return written.object
        return self._store.remove(kind, key, writer).object

    def _end_namespace(
        self,
        kind: Kind,
        stored: Version,
        policy: str | None,
        writer: Writer,
        now_s: float,
        *,
        is_dry: bool,
    ) -> Plain:
        """Mark a namespace as ending; it goes when it has no finalizers any more."""
        new = stored.copy()
        meta = new["metadata"]
        if meta.get("deletionTimestamp"):
            return stored.object
        _choose_finalizers(meta, policy)
        meta["deletionTimestamp"] = stamp(now_s)
        new["status"] = {**new.get("status", {}), "phase": "Terminating"}
        return new if is_dry else self._store.put(kind, ("", meta["name"]), new, writer).object

    def must_go(self, new: Mapping[str, Any], old: Version) -> bool:
        """Whether a write took the last finalizer from an object that is being deleted."""
        meta = old.object["metadata"]
        if new["metadata"].get("finalizers"):
            return False
        if old.object["kind"] == "Namespace":
            return bool(meta.get("deletionTimestamp")) and not new["spec"].get("finalizers")
        return bool(meta.get("deletionGracePeriodSeconds") == 0)


def check_preconditions(kind: Kind, stored: Version, wanted: Mapping[str, Any]) -> None:
    """Refuse a call that means another object or another version."""
    meta = stored.object["metadata"]
    for name, text in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        value = wanted.get(name)
        if value is not None and value != meta[name]:
            problem = (
                f"the {text} in the precondition ({value}) does not match the {text} in record "
                f"({meta[name]}). The object might have been deleted and then recreated"
            )
            raise conflict(kind.qualified, meta["name"], problem)


def _mark_gracefully(new: Plain, given: int | None, now_s: float) -> int | None:
    """Mark a pod as being deleted; return its grace period, None if nothing changes."""
    meta = new["metadata"]
    if not meta.get("deletionTimestamp"):
        grace = grace_s(new, given)
        meta["deletionTimestamp"] = stamp(now_s + grace)
        meta["deletionGracePeriodSeconds"] = grace
        if meta.get("generation"):
            meta["generation"] += 1
        return grace
    before: int = meta["deletionGracePeriodSeconds"]
    if given is None or given >= before:
        return None
    began_s = parsed_s(meta["deletionTimestamp"]) - before
    ends_s = began_s + given
    if ends_s < now_s:  # the end does not move into the past
        ends_s, given = now_s, min(given, 1)
    meta["deletionTimestamp"] = stamp(ends_s)
    meta["deletionGracePeriodSeconds"] = given
    return given


def _mark(meta: Plain, now_s: float) -> None:
    if not meta.get("deletionTimestamp") and meta.get("generation"):
        meta["generation"] += 1
    if not meta.get("deletionTimestamp") or parsed_s(meta["deletionTimestamp"]) > now_s:
        meta["deletionTimestamp"] = stamp(now_s)
    meta["deletionGracePeriodSeconds"] = 0


def _choose_finalizers(meta: Plain, policy: str | None) -> None:
    if policy is None:
        return
    rest = [each for each in meta.get("finalizers") or () if each not in (ORPHAN, FOREGROUND)]
    rest += _POLICIES[policy]
    if rest:
        meta["finalizers"] = rest
    else:
        meta.pop("finalizers", None)
