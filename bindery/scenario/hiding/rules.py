"""How the fields of objects are hidden, by struct and field or by the name of the field alone.

Used by `hider`. A field without a rule is hidden by its type: its texts are words.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from types import UnionType
from typing import Annotated, Any, Final, NamedTuple, Protocol, Union, get_args, get_origin

import msgspec

from bindery.api import numadetail, podfingerprint
from bindery.api.exclusive import HeldDomains
from bindery.api.keptroom import KeptRoom
from bindery.api.names import SCHEDULER_NAME
from bindery.api.numaplacement import NumaPlacement
from bindery.kube.objects import (
    bindrequests,
    claims,
    devices,
    nodetopologies,
    podspec,
    topology,
    watched,
)
from bindery.kube.objects.podgroups import PodTemplate
from bindery.kube.objects.queues import QueueResource, QueueSpec
from bindery.scenario.fields import AnyObject
from bindery.scenario.hiding import texts
from bindery.scenario.hiding.texts import PLAIN
from bindery.scheduler.model.images import normalized

_ZONE: Final = re.compile(rf"{nodetopologies.ZONE_PREFIX}\d+")
SCHEDULERS: Final = frozenset({SCHEDULER_NAME, "default-scheduler"})
_PUBLIC_GROUP: Final = re.compile(
    r"(?:(?:apps|batch|(?:.*\.)?(?:k8s\.io|x-k8s\.io|bindery\.dev|kubeflow\.org|ray\.io|volcano\.sh"
    r"|grove\.io|run\.ai|sparkoperator\.k8s\.io))/)?v\d\w*"
)
"""API versions of owners; the kinds of others are hidden."""
_REJECTED: Final = "Pod was rejected"
"""What the kubelet's message about a pod that it does not admit begins with."""
_OUT_OF: Final = "OutOf"
"""What the kubelet's reasons begin with when a resource is used up."""
_LABELS: Final = frozenset({"labels", "matchLabels", "nodeSelector", "podLabels"})
_AMOUNTS: Final = frozenset(
    {
        *("requests", "limits", "overhead", "allocatable", "capacity", "allocatedResources"),
        *("hard", "allocated", "fairShare", "requested", "pending", "kept", "quota", "limit"),
    }
)
"""Fields with amounts by resource, or with one amount."""
_PLAIN: Final = _AMOUNTS | {
    *("accessModes", "action", "allocationMode", "allocationTimestamp", "available"),
    *("completionMode", "completionTime", "condition", "creationTimestamp"),
    *("default", "deletionTimestamp", "disruptionMode", "effect", "kind"),
    *("lastTransitionTime", "max", "maximumVolumeSize", "medium", "min", "mode"),
    *("nextAttemptTime", "nodeAffinityPolicy", "nodeTaintsPolicy", "operator", "phase", "portion"),
    *("preemptibility", "preemptionPolicy", "protocol", "receivedResourceType"),
    *("resource", "resourceVersion", "restartPolicy", "since", "source", "startTime", "state"),
    *("status", "step", "topologyPolicies", "type", "validValues", "value", "volumeBindingMode"),
    *("volumeMode", "whenUnsatisfiable"),
}
"""Fields with numbers, amounts, times and words of the API."""
_DEVICE_WORDS: Final = frozenset(
    {"distinctAttribute", "driver", "expression", "matchAttribute", "string", "version"}
)
_OF_DEVICES: Final = frozenset({claims.__name__, devices.__name__})
"""The modules in which `_DEVICE_WORDS` stay: they describe hardware."""
_ATTRIBUTES: Final = frozenset(
    {
        nodetopologies.POLICY_ATTRIBUTE,
        nodetopologies.SCOPE_ATTRIBUTE,
        podfingerprint.ATTRIBUTE,
        podfingerprint.METHOD_ATTRIBUTE,
    }
)


class _ClaimUse(msgspec.Struct):
    """The use of a claim by a container."""

    name: str
    request: str


class _VolumeEntry(msgspec.Struct):
    name: str
    uid: str
    volume: str


class _Volumes(msgspec.Struct):
    """The data of the plugin volumes in a BindRequest."""

    claims: list[_VolumeEntry]


_PLUGIN_DATA: Final[Mapping[str, Any]] = {
    "stages": KeptRoom,
    "topology": HeldDomains,
    "numa": NumaPlacement,
    "dra": claims.Handover,
    "volumes": _Volumes,
}


class Hides(Protocol):
    """Hides the names in values."""

    def word(self, text: str) -> str:
        """Return the pseudonym of `text`, or `text` if it stays."""

    def value(self, value: Any, hint: Any) -> Any:
        """Return `value`, which is a `hint` if it is valid, with pseudonyms."""

    def struct(self, value: AnyObject, kind: type[msgspec.Struct]) -> AnyObject:
        """Return the fields of `value` that `kind` declares, with pseudonyms."""

    def pairs(self, value: Any) -> Any:
        """Return labels or annotations with pseudonyms."""

    def amounts(self, value: Any) -> Any:
        """Return amounts by resource with pseudonyms of resources."""

    def plain(self, value: Any) -> Any:
        """Return `value` with a pseudonym for each text that is no plain value."""

    def resource(self, name: str) -> str:
        """Return the pseudonym of a resource, or the name if it stays."""


Rule = Callable[[Hides, Any], Any]
"""Hides the names in the value of a field."""


class Field(NamedTuple):
    """A field that a struct declares."""

    name: str
    hint: Any
    """Its type, without annotations and without None."""
    is_word: bool
    """Whether it is declared to have one of some words of the API."""


@cache
def fields_of(kind: type[msgspec.Struct]) -> tuple[Field, ...]:
    """Return the fields of `kind`."""
    declared = msgspec.structs.fields(kind)
    return tuple(
        Field(each.encode_name, plain_type(each.type), _is_word(each.type)) for each in declared
    )


def _is_word(hint: Any) -> bool:
    marks = hint.__metadata__ if get_origin(hint) is Annotated else ()
    return any("enum" in (getattr(mark, "extra_json_schema", None) or {}) for mark in marks)


def plain_type(hint: Any) -> Any:
    """Return `hint` without annotations and without None."""
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if get_origin(hint) not in (Union, UnionType):
        return hint
    others = [each for each in get_args(hint) if each is not type(None)]
    return plain_type(others[0]) if len(others) == 1 else Any


def rule(kind: type[msgspec.Struct], known: Field, value: Any) -> Rule | None:
    """Return the rule for a field of `kind` with `value`; None if the type of the field decides."""
    if known.is_word:
        return _plain
    is_list = isinstance(value, list) and any(isinstance(each, dict) for each in value)
    return _rule(kind, known.name, _Form(isinstance(value, dict), is_list, _is_map(known.hint)))


class _Form(NamedTuple):
    """The form of the value of a field."""

    is_object: bool
    is_list_of_objects: bool
    is_map: bool
    """Whether the field has objects with any keys."""


def _is_map(hint: Any) -> bool:
    return get_origin(hint) is dict


@cache
def _rule(kind: type[msgspec.Struct], name: str, form: _Form) -> Rule | None:
    if (kind, name) in _RULES:
        return _RULES[kind, name]
    if form.is_map and (name in _LABELS or name == "annotations"):
        return _pairs
    if kind.__module__ in _OF_DEVICES and (
        name in _DEVICE_WORDS or (name in _AMOUNTS and form.is_object)
    ):
        return _as_it_is
    if form.is_object:
        return _amounts if form.is_map and name in _AMOUNTS else _BY_NAME.get(name)
    if form.is_list_of_objects:
        return None
    return _BY_NAME.get(name) or (_plain if name in _PLAIN else None)


def _as_it_is(_hider: Hides, value: Any) -> Any:
    return value


def _texts(text: texts.Text) -> Rule:
    """Return a rule for a field with a text, or with a list of texts."""

    def hide(hider: Hides, value: Any) -> Any:
        if isinstance(value, list):
            return [hide(hider, each) for each in value]
        return text(hider.word, value) if isinstance(value, str) else hider.value(value, Any)

    return hide


def _as(hint: Any) -> Rule:
    """Return a rule for a field that is read as `hint`."""
    return lambda hider, value: hider.value(value, hint)


def _keys(of_key: Callable[[Hides, str], str], of_value: Rule) -> Rule:
    """Return a rule for an object with such keys and values."""

    def hide(hider: Hides, value: Any) -> Any:
        if not isinstance(value, dict):
            return hider.value(value, Any)
        return {of_key(hider, key): of_value(hider, each) for key, each in value.items()}

    return hide


def _pairs(hider: Hides, value: Any) -> Any:
    return hider.pairs(value)


def _amounts(hider: Hides, value: Any) -> Any:
    return hider.amounts(value)


def _plain(hider: Hides, value: Any) -> Any:
    return hider.plain(value)


def _resource(hider: Hides, value: Any) -> Any:
    return hider.resource(value) if isinstance(value, str) else value


def _image(word: texts.Word, text: str) -> str:
    return word(normalized(text)) if text else ""


def _zone(hider: Hides, value: Any) -> Any:
    is_zone = isinstance(value, str) and _ZONE.fullmatch(value)
    return value if is_zone else hider.value(value, Any)


def _loose(hider: Hides, value: Any) -> Any:
    """Hide the texts in a value that holds only what a program reads."""
    if isinstance(value, dict):
        return {_loose(hider, key): _loose(hider, each) for key, each in value.items()}
    if isinstance(value, list):
        return [_loose(hider, each) for each in value]
    is_kept = not isinstance(value, str) or PLAIN.fullmatch(value)
    return value if is_kept else hider.word(value)


def _reason(hider: Hides, value: Any) -> Any:
    is_resource = isinstance(value, str) and value.startswith(_OUT_OF)
    return _OUT_OF + hider.resource(value[len(_OUT_OF) :]) if is_resource else hider.plain(value)


def _message(_word: texts.Word, text: str) -> str:
    return _REJECTED if text.startswith(_REJECTED) else ""


def _scheduler(word: texts.Word, text: str) -> str:
    return text if text in SCHEDULERS else word(text)


def _owner(hider: Hides, value: Any) -> Any:
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        return hider.value(value, Any)
    owners = [hider.struct(each, watched.OwnerReference) for each in value]
    for owner, given in zip(owners, value, strict=True):
        if not _PUBLIC_GROUP.fullmatch(str(given.get("apiVersion", "v1"))):
            owner["kind"] = hider.word(str(given.get("kind", "")))
        elif "apiVersion" in given:
            owner["apiVersion"] = given["apiVersion"]
    return owners


def _attributes(hider: Hides, value: Any) -> Any:
    """Hide the attributes of a report of zones."""
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        return hider.value(value, Any)
    found = [hider.struct(each, nodetopologies.Attribute) for each in value]
    for hidden_one, given in zip(found, value, strict=True):
        if given.get("name") in _ATTRIBUTES:
            hidden_one |= {"name": given["name"], "value": _loose(hider, given.get("value"))}
    return found


def _plugin_data(hider: Hides, value: Any) -> Any:
    if not isinstance(value, dict):
        return hider.value(value, Any)
    found: AnyObject = {}
    for name, data in value.items():
        if name == "hami":
            found[name] = texts.assignment(hider.word, data)
        elif name in _PLUGIN_DATA:
            found[name] = hider.value(data, _PLUGIN_DATA[name])
        else:
            found[hider.word(name)] = hider.value(data, Any)
    return found


_RULES: Final[Mapping[tuple[type, str], Rule]] = {
    (watched.Meta, "ownerReferences"): _owner,
    (watched.ContainerImage, "names"): _texts(_image),
    (podspec.Container, "image"): _texts(_image),
    (podspec.ImageVolume, "reference"): _texts(_image),
    (podspec.Volume, "ephemeral"): lambda _hider, value: {} if value is not None else None,
    (podspec.ResourceRequirements, "claims"): _as(list[_ClaimUse]),
    (PodTemplate, "spec"): _as(podspec.PodSpec),
    (QueueSpec, "resources"): _keys(_resource, _as(QueueResource)),
    (QueueSpec, "models"): _keys(_loose, _as(QueueResource)),
    (nodetopologies.NodeResourceTopology, "attributes"): _attributes,
    (nodetopologies.Zone, "attributes"): _attributes,
    (nodetopologies.Zone, "name"): _zone,
    (nodetopologies.Zone, "parent"): _zone,
    (nodetopologies.Cost, "name"): _zone,
    (nodetopologies.ZoneResource, "name"): _resource,
    **{
        (numadetail.NumaDetail, each.encode_name): _loose
        for each in msgspec.structs.fields(numadetail.NumaDetail)
        if each.name not in ("pods", "held")
    },
    (numadetail.PodZones, "held"): _keys(_zone, _amounts),
    (numadetail.PodZones, "memory"): _loose,
    (numadetail.NumaDetail, "devices"): _keys(_resource, _keys(_zone, _as(Any))),
    (NumaPlacement, "held"): _keys(_plain, _amounts),
    (topology.Member, "regex"): _as_it_is,  # `named_sets` has replaced it
    (HeldDomains, "levels"): _texts(texts.level),
    (devices.Device, "attributes"): _keys(_as_it_is, _as(devices.DeviceAttribute)),
    (bindrequests.StatementSpec, "id"): _texts(texts.statement),
    (bindrequests.StatementSpec, "after"): _texts(texts.statement),
    (bindrequests.StatementStatus, "id"): _texts(texts.statement),
    (bindrequests.BindRequestSpec, "withdrawn"): _texts(texts.statement),
    (bindrequests.PodBinding, "pluginData"): _plugin_data,
}
_BY_NAME: Final[Mapping[str, Rule]] = {
    "bindMountOptions": _loose,
    "consumedCapacity": _as_it_is,
    "declaredFeatures": _loose,
    "diskURI": _texts(texts.path),
    "extendedResourceName": _resource,
    "message": _texts(_message),
    "parameters": lambda _hider, _value: None,
    "reason": _reason,
    "request": _texts(texts.path),
    "requestName": _texts(texts.path),
    "requests": _texts(texts.path),
    "resourceName": _resource,
    "schedulerName": _texts(_scheduler),
    "summary": lambda _hider, _value: None,
    "volumeHandle": _texts(texts.path),
    "volumeID": _texts(texts.path),
}
