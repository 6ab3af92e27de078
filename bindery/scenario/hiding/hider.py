"""Hides the names in objects, one by one. Used by `hidden`.

Objects are read by the structs of the watches: fields that they do not declare are left out, and
each text is a word, which gets a pseudonym, unless its field or key is known to hold something
else: a number, an amount, a time, a word of the API.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final, get_args, get_origin

import msgspec

from bindery.api import gpushare, podfingerprint
from bindery.api.gpus import DEFAULT_GPU_DEVICE_CLASSES, DEFAULT_GPU_RESOURCES, MODEL_PREFIX
from bindery.api.hami.vendortable import VENDORS
from bindery.api.names import DEFAULT_QUEUE, MIG_PREFIX
from bindery.kube.objects import (
    devices,
    nodetopologies,
    watched,
)
from bindery.kube.objects.claims import CLASS_PREFIX
from bindery.kube.objects.disks import MIGRATED_PROVISIONERS
from bindery.kube.objects.queueaccess import EVERY_OTHER
from bindery.scenario.fields import AnyObject
from bindery.scenario.given_objects import Kinds
from bindery.scenario.hiding import texts
from bindery.scenario.hiding.named_sets import PodNames
from bindery.scenario.hiding.pseudonyms import between
from bindery.scenario.hiding.rules import fields_of, plain_type, rule
from bindery.scheduler.plugins.volumes.matching import NO_PROVISIONER
from bindery.scheduler.usage.place import KEY, RECORD_NAME

KEPT_NAMES: Final = frozenset({DEFAULT_QUEUE, gpushare.RESERVATION_NAMESPACE})
"""Names of objects that planning knows. The pseudonyms of others are sorted around them."""
_KEPT: Final = frozenset(
    {
        *(KEPT_NAMES | texts.KEYS | MIGRATED_PROVISIONERS.keys()),
        *(*MIGRATED_PROVISIONERS.values(), NO_PROVISIONER, *DEFAULT_GPU_DEVICE_CLASSES),
        *("", EVERY_OTHER, "0.0.0.0", "::", "127.0.0.1"),  # noqa: S104  # compared, not bound
    }
)
_ID: Final = re.compile(
    r"(?:[A-Z]{2,4}-)?[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}(?:-\d+(?:\.\d+)?)?"
    r"|container-\d+-request-\d+",
)
"""A UUID, also of a device or of a Statement, and the names of the requests for extended resources:
none of them is made from a name.
"""
_API: Final = re.compile(r"[-+]?[0-9.][-+0-9A-Za-z:.]*|[A-Z][A-Za-z0-9]*|hard|soft|pods|podgroups|")
"""Numbers, amounts, times and words of the API."""
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}")
_NATIVE: Final = re.compile(r"cpu|memory|pods|gpu|storage|ephemeral-storage|hugepages-\w+")
_QUOTA: Final = re.compile(r"(?:requests|limits)\.")
_KNOWN_RESOURCES: Final = frozenset(
    {
        *DEFAULT_GPU_RESOURCES,
        *(name for v in VENDORS for name in (v.count_resource, *v.managed_resources)),
        *(name for v in VENDORS for name in (v.memory_resource, v.percentage_resource)),
        *(name for v in VENDORS for name in (v.cores_resource, *v.other_resources)),
    }
) - {""}


@dataclass
class Seen:
    """What a first reading has found."""

    words: set[str] = field(default_factory=set)
    resources: set[str] = field(default_factory=set)
    """Names of resources that are hidden."""
    kept_resources: set[str] = field(default_factory=set)
    classes: set[str] = field(default_factory=set)
    """Names of DeviceClasses."""
    compared: set[str] = field(default_factory=set)
    """Keys of labels and taints whose values are compared as numbers."""


class Hider:
    """Replaces names in objects. Without `names`, it only notes them in `seen`."""

    def __init__(
        self,
        kinds: Kinds,
        seen: Seen,
        names: Mapping[str, str] | None,
        signed: Mapping[str, PodNames],
    ) -> None:
        self.seen = seen
        self._kinds = kinds
        self._names = names
        self._signed = signed

    def object(self, item: AnyObject) -> AnyObject:
        """Return `item` with pseudonyms."""
        head = {key: item[key] for key in ("apiVersion", "kind")}
        resource = self._kinds[item["apiVersion"], item["kind"]]
        found = self.struct(item, resource.type)
        if resource.type is watched.ConfigMap:
            return {**head, **found, **self._record(item)}
        if resource.type is devices.DeviceClass:
            self.seen.classes.add(str(item["metadata"]["name"]))
        if resource.type is nodetopologies.NodeResourceTopology:
            self._sign(found, str(item["metadata"]["name"]))
        return {**head, **found}

    def word(self, text: str) -> str:
        """Return the pseudonym of `text`, or `text` if it stays."""
        if text in _KEPT or _ID.fullmatch(text):
            return text
        if self._names is None:
            self.seen.words.add(text)
            return text
        return self._names[text]

    def value(self, value: Any, hint: Any) -> Any:
        """Return `value`, which is a `hint` if it is valid, with pseudonyms."""
        if isinstance(value, str):
            return self.word(value)
        hint = plain_type(hint)
        if isinstance(value, list):
            inner = get_args(hint)[0] if get_origin(hint) in (list, tuple) else Any
            return [self.value(each, inner) for each in value]
        if not isinstance(value, dict):
            return value
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            return self.struct(value, hint)
        inner = get_args(hint)[1] if get_origin(hint) is dict else Any
        return {self.word(str(key)): self.value(each, inner) for key, each in value.items()}

    def struct(self, value: AnyObject, kind: type[msgspec.Struct]) -> AnyObject:
        """Return the fields of `value` that `kind` declares, with pseudonyms."""
        found: AnyObject = {}
        for each in fields_of(kind):
            name = each.name
            if name in value:
                hide = rule(kind, each, value[name])
                given = value[name]
                found[name] = hide(self, given) if hide else self.value(given, each.hint)
        if isinstance(value.get("key"), str):
            self._mark(value, found)
        return found

    def _mark(self, value: AnyObject, found: AnyObject) -> None:
        """Hide the value, or the values, for a key of labels, annotations or taints."""
        if value.get("operator") in ("Gt", "Lt"):
            self.seen.compared.add(value["key"])
        found["key"] = self.word(value["key"])
        if isinstance(value.get("value"), str):
            found["value"] = self._of_key(value["key"], value["value"])
        if isinstance(value.get("values"), list):
            found["values"] = [
                self._of_key(value["key"], each) if isinstance(each, str) else self.value(each, Any)
                for each in value["values"]
            ]

    def pairs(self, value: Any) -> Any:
        """Return labels or annotations with pseudonyms."""
        if not isinstance(value, dict):
            return self.value(value, Any)
        return {
            self._key(key): self._of_key(key, each)
            if isinstance(each, str)
            else self.value(each, Any)
            for key, each in value.items()
        }

    def _key(self, key: str) -> str:
        prefix = gpushare.GROUP_LABEL_PREFIX
        is_group = key.startswith(prefix)
        return prefix + self.word(key.removeprefix(prefix)) if is_group else self.word(key)

    def _of_key(self, key: str, text: str) -> str:
        if key in texts.STRUCTS:
            try:
                found = self.value(msgspec.json.decode(text), texts.STRUCTS[key])
            except (msgspec.DecodeError, RecursionError):
                return self.word(text)
            return msgspec.json.encode(found).decode()
        if key in texts.TEXTS:
            return texts.TEXTS[key](self.word, text)
        is_number = key in self.seen.compared and _INTEGER.fullmatch(text)
        return text if is_number else self.word(text)

    def amounts(self, value: Any) -> Any:
        """Return amounts by resource with pseudonyms of resources."""
        return {self.resource(name): self.plain(each) for name, each in value.items()}

    def plain(self, value: Any) -> Any:
        """Return `value` with a pseudonym for each text that is no plain value."""
        if isinstance(value, list):
            return [self.plain(each) for each in value]
        if isinstance(value, str):
            return value if _API.fullmatch(value) else self.word(value)
        return self.value(value, Any)

    def resource(self, name: str) -> str:
        """Return the pseudonym of a resource, or the name if it stays."""
        if quota := _QUOTA.match(name):
            return quota[0] + self.resource(name[quota.end() :])
        if name.startswith(CLASS_PREFIX):
            return CLASS_PREFIX + self.word(name.removeprefix(CLASS_PREFIX))
        is_known = name in _KNOWN_RESOURCES or name.startswith((MIG_PREFIX, MODEL_PREFIX))
        if is_known or _NATIVE.fullmatch(name):
            self.seen.kept_resources.add(name)
            return name
        self.seen.resources.add(name)
        word = self.word(name)
        if "/" not in name:
            return word
        kept = sorted(self.seen.kept_resources)
        at = sum(each < name for each in kept)
        return f"{between(kept[at - 1] if at else '', kept[at:])}.hidden/{word}"

    def matching(self, names: set[str], patterns: Sequence[str]) -> list[str]:
        """Return which of `names` match one of `patterns`, sorted."""
        return sorted(n for n in names if any(fnmatchcase(n, each) for each in patterns))

    def _record(self, item: AnyObject) -> AnyObject:
        """Return name and data of the record of past usage."""
        name, text = str(item["metadata"]["name"]), (item.get("data") or {}).get(KEY, "")
        _, prefix, pool = name.partition(f"{RECORD_NAME}-")
        metadata = self.struct(item["metadata"], watched.Meta)
        metadata["name"] = prefix + self.word(pool) if prefix else RECORD_NAME
        try:
            record = msgspec.json.decode(text)
            record["queues"] = [self.word(each) for each in record["queues"]]
            record["resources"] = [self.resource(each) for each in record["resources"]]
        except (msgspec.DecodeError, RecursionError, TypeError, KeyError):
            return {"metadata": metadata, "data": {}}
        return {"metadata": metadata, "data": {KEY: msgspec.json.encode(record).decode()}}

    def _sign(self, found: AnyObject, node: str) -> None:
        """Replace the fingerprint of a report by that of the pseudonyms of its pods."""
        pods = self._signed.get(node)
        sign = podfingerprint.PREFIX + "0" * 16
        if pods is not None:
            sign = podfingerprint.sign((self.word(space), self.word(pod)) for space, pod in pods)
        annotations = found["metadata"].get("annotations")
        if isinstance(annotations, dict) and podfingerprint.ANNOTATION in annotations:
            annotations[podfingerprint.ANNOTATION] = sign
        for each in found.get("attributes") or ():
            if isinstance(each, dict) and each.get("name") == podfingerprint.ATTRIBUTE:
                each["value"] = sign
