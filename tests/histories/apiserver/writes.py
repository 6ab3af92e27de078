"""Creations, replacements and patches."""

import random
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.histories.apiserver import metadata, patches
from tests.histories.apiserver.calls import Call
from tests.histories.apiserver.deletion import Deleter
from tests.histories.apiserver.kinds import (
    Kind,
    Moment,
    Plain,
    Problems,
    is_same_spec,
    without_empty,
)
from tests.histories.apiserver.refusals import (
    CHANGED,
    Refusal,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid,
    not_found,
)
from tests.histories.apiserver.store import Store, Version, Writer

_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_SYSTEM: Final = ("uid", "resourceVersion", "generation", "creationTimestamp")
_STRICT: Final = ("", "scheduling.k8s.io", "resource.k8s.io", "events.k8s.io")
"""The groups in which a finalizer without a domain must be one of Kubernetes' own."""
_NAME_ATTEMPTS: Final = 8
MERGE: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"


class Writes:
    """Writes objects to a store, by the rules of their kinds."""

    def __init__(
        self,
        store: Store,
        deleter: Deleter,
        moment: Callable[[], Moment],
        chance: random.Random,
        namespaces: Kind,
    ) -> None:
        self._store = store
        self._deleter = deleter
        self._moment = moment
        self._chance = chance
        self._namespaces = namespaces

    def create(self, call: Call, value: Plain | None = None) -> tuple[int, Plain]:
        """Create an object; return the status code and the object."""
        kind, place = call.place.kind, call.place
        new = self._read(call, call.object() if value is None else value)
        meta = new["metadata"]
        if kind.namespaced:
            if meta.get("namespace", place.namespace) != place.namespace:
                text = "the namespace of the provided object does not match the namespace sent"
                raise bad_request(f"{text} on the request")
            meta["namespace"] = place.namespace
            self._admit_namespace(kind, meta)
        else:
            meta.pop("namespace", None)
        name = self._name(kind, meta)
        moment = self._moment()
        version = meta.get("resourceVersion")
        for field in (*_SYSTEM, "deletionTimestamp", "deletionGracePeriodSeconds"):
            meta.pop(field, None)
        kind.strategy.prepare_create(new, moment)
        self._clean(kind, new)
        kind.strategy.default(new)
        new["metadata"] = meta = metadata.cleaned(new["metadata"])
        problem = "metadata.name: Required value"
        if name:
            problem = metadata.problem_of_name(name, metadata.pattern_of_name(kind.plural))
        found = [
            *([problem] if problem else ()),
            *metadata.problems(meta, strict=kind.group in _STRICT),
        ]
        found += [*_problems_of_kind(kind, new), *kind.strategy.problems(new)]
        if found:
            raise invalid(kind.name, name, found)
        if version:
            text = "resourceVersion should not be set on objects to be created"
            raise Refusal(500, "", text)
        key = (meta.get("namespace", ""), name)
        if self._store.get(kind, key) is not None:
            raise already_exists(kind.qualified, name)
        meta["uid"] = str(uuid.UUID(int=self._chance.getrandbits(128), version=4))
        meta["creationTimestamp"] = moment.stamp(moment.now_s)
        if kind.strategy.counts_generations or kind.strategy.first_generation:
            meta["generation"] = 1
        if call.is_dry:
            return 201, new
        return 201, self._store.put(kind, key, new, Writer(call.caller, "create")).object

    def replace(self, call: Call) -> tuple[int, Plain]:
        """Replace an object, or create it where its kind allows that."""
        kind, place = call.place.kind, call.place
        new = self._read(call, call.object())
        meta = new["metadata"]
        if meta.setdefault("name", place.name) != place.name:
            raise bad_request("the name of the object does not match the name on the URL")
        if kind.namespaced and meta.setdefault("namespace", place.namespace) != place.namespace:
            raise bad_request("the namespace of the object does not match the namespace on the URL")
        if not kind.namespaced:
            meta.pop("namespace", None)
        stored = self._store.get(kind, call.key)
        if stored is None:
            if kind.strategy.create_on_update and not place.subresource:
                return self.create(call, new)
            raise not_found(kind.qualified, place.name)
        uid = meta.get("uid")
        if uid and uid != stored.object["metadata"]["uid"]:
            text = f"Precondition failed: UID in precondition: {uid}"
            raise conflict(kind.qualified, place.name, text)
        return 200, self._update(call, stored, new)

    def patch(self, call: Call) -> tuple[int, Plain]:
        """Patch an object."""
        kind, place = call.place.kind, call.place
        patch = call.decoded()
        self._check_patch(call, patch)
        stored = self._store.get(kind, call.key)
        if stored is None:
            raise not_found(kind.qualified, place.name)
        new = stored.copy()
        try:
            if call.content_type == JSON_PATCH:
                patches.apply_json(new, patch)
            elif call.content_type == STRATEGIC:
                patches.strategic(new, patch, kind.strategy.merge_keys)
            else:
                patches.merge(new, patch)
        except patches.PatchError as error:
            raise invalid(kind.name, place.name, [str(error)]) from error
        meta = new.get("metadata") or {}
        if not metadata.has_right_types(new.get("metadata")):
            raise invalid(kind.name, place.name, ["metadata: Invalid value"])
        if (new.get("kind"), new.get("apiVersion")) != (kind.name, kind.api_version):
            raise bad_request("the kind or apiVersion of the patched object does not match")
        if (meta.get("name"), meta.get("namespace", "")) != (place.name, place.namespace):
            raise bad_request("the name or namespace of the object does not match the URL")
        return 200, self._update(call, stored, new)

    def _check_patch(self, call: Call, patch: Any) -> None:
        if call.content_type not in (MERGE, JSON_PATCH, STRATEGIC):
            raise Refusal(415, "UnsupportedMediaType", f"media type {call.content_type}")
        if call.content_type == STRATEGIC and call.place.kind.strategy.is_custom:
            raise Refusal(415, "UnsupportedMediaType", "strategic merge patch of a custom resource")
        if not isinstance(patch, list if call.content_type == JSON_PATCH else dict):
            raise bad_request("the patch has the wrong type")

    def _update(self, call: Call, stored: Version, new: Plain) -> Plain:
        """Store `new`, whose metadata is complete, in place of `stored`."""
        self._admit_update(call.place.namespace)
        kind, old = call.place.kind, stored.object
        strategy, status = kind.strategy, call.place.subresource == "status"
        meta, old_meta = new["metadata"], old["metadata"]
        self._check_version(kind, meta, stored)
        meta["uid"] = meta.get("uid") or old_meta["uid"]
        for name in ("creationTimestamp", "generation", "generateName"):
            meta.pop(name, None)
            if name in old_meta:
                meta[name] = old_meta[name]
        if call.place.subresource == "finalize":
            new = {**old, "metadata": meta, "spec": new.get("spec") or {}}
        elif status:
            strategy.prepare_status(new, old)
            if not strategy.status_metadata:
                new = {**old, "status": new.get("status"), "metadata": _kept(kind, meta, old_meta)}
                if new["status"] is None:
                    del new["status"]
                meta = new["metadata"]
        else:
            strategy.prepare_update(new, old)
        for name in ("deletionTimestamp", "deletionGracePeriodSeconds"):
            if name in old_meta and (name == "deletionTimestamp" or meta.get(name) is None):
                meta[name] = old_meta[name]
        self._clean(kind, new)
        is_retyped = strategy.default(new)
        new["metadata"] = meta = metadata.cleaned(new["metadata"])
        is_same = is_same_spec(new, old) and not is_retyped
        if strategy.counts_generations and not status and not is_same:
            meta["generation"] = old_meta.get("generation", 0) + 1
        found = [
            *metadata.problems_of_update(meta, old_meta),
            *metadata.problems(meta, strict=kind.group in _STRICT),
        ]
        found += [*_problems_of_kind(kind, new), *strategy.problems(new)]
        found += (strategy.problems_of_status if status else strategy.problems_of_update)(new, old)
        if found:
            raise invalid(kind.name, call.place.name, found)
        return self._finish(call, stored, new)

    def _finish(self, call: Call, stored: Version, new: Plain) -> Plain:
        kind = call.place.kind
        if call.is_dry:
            return new
        writer = Writer(call.caller, call.verb, call.place.subresource)
        if self._deleter.must_go(new, stored):
            self._store.remove(kind, call.key, writer)
            new["metadata"]["resourceVersion"] = str(stored.revision)
            return new
        return self._store.put(kind, call.key, new, writer).object

    def _check_version(self, kind: Kind, meta: Plain, stored: Version) -> None:
        version = meta.get("resourceVersion")
        if version in (None, "", "0"):
            if not kind.strategy.unconditional_update:
                text = "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
                raise invalid(kind.name, meta["name"], [text])
        elif version != str(stored.revision):
            raise conflict(kind.qualified, meta["name"], CHANGED)

    def _clean(self, kind: Kind, new: Plain) -> None:
        """Remove empty fields of built-in kinds."""
        if not kind.strategy.is_custom:
            for name in [name for name, value in new.items() if value is None]:
                del new[name]
            for name in ("spec", "status"):
                if name in new:
                    without_empty(new[name])

    def _read(self, call: Call, value: Plain) -> Plain:
        """Return the body with kind, apiVersion and metadata first, as bodies are stored."""
        kind = call.place.kind
        given = (value.get("kind", kind.name), value.get("apiVersion", kind.api_version))
        is_other = given[1] != kind.api_version or given[0] != kind.name
        if is_other and not (kind.strategy.is_custom and given[1] == kind.api_version):
            raise bad_request(f"the object is {given}, not {kind.api_version} {kind.name}")
        if kind.strategy.is_custom and not ("kind" in value and "apiVersion" in value):
            raise bad_request("Object 'Kind' or 'apiVersion' is missing")
        meta = value.get("metadata") or {}
        if not metadata.has_right_types(meta):
            raise bad_request("metadata has fields of the wrong type")
        head = {"kind": given[0], "apiVersion": kind.api_version, "metadata": meta}
        return {**head, **{k: v for k, v in value.items() if k not in head}}

    def _name(self, kind: Kind, meta: Plain) -> str:
        name: str = meta.get("name") or ""
        base = meta.get("generateName") or ""
        if name or not base:
            return name
        for _ in range(_NAME_ATTEMPTS):
            name = base[:58] + "".join(self._chance.choices(_LETTERS, k=5))
            if self._store.get(kind, (meta.get("namespace", ""), name)) is None:
                break
        meta["name"] = name
        return name

    def _admit_update(self, namespace: str) -> None:
        if namespace and self._store.get(self._namespaces, ("", namespace)) is None:
            raise not_found("namespaces", namespace)

    def _admit_namespace(self, kind: Kind, meta: Mapping[str, Any]) -> None:
        namespace = meta["namespace"]
        found = self._store.get(self._namespaces, ("", namespace))
        if found is None:
            raise not_found("namespaces", namespace)
        if found.object["metadata"].get("deletionTimestamp"):
            text = (
                f"unable to create new content in namespace {namespace} because it is being "
                "terminated"
            )
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {namespace} is being terminated",
                "field": "metadata.namespace",
            }
            raise forbidden(kind.qualified, meta.get("name", ""), text, [cause])


def _kept(kind: Kind, meta: Plain, old: Mapping[str, Any]) -> Plain:
    """Return the metadata of a write that may only change the status.

    A custom resource keeps all, so not even another UID in the write is refused.
    """
    return dict(old) if kind.strategy.is_custom else {**old, "uid": meta["uid"]}


def _problems_of_kind(kind: Kind, new: Mapping[str, Any]) -> Problems:
    return [] if new["kind"] == kind.name else [f"kind: Invalid value: must be {kind.name}"]
