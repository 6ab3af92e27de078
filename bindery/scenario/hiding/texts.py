"""Hides the names in the values of labels and annotations. Used by `hider`; pure.

A key that is listed here stays, and its value keeps the form in which planning reads the value.
All other keys and values are words, which are hidden as a whole.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from bindery.api import disruption, exclusive, gpushare, names, podfingerprint, podkeys, ranks
from bindery.api.hami import names as hami
from bindery.api.hami import wishes
from bindery.api.hami.assignment import PROTOCOL_KEYS
from bindery.api.hami.vendor import Extra
from bindery.api.hami.vendortable import VENDORS
from bindery.api.keptroom import KeptRoom
from bindery.api.numadetail import NumaDetail
from bindery.api.numaplacement import NumaPlacement
from bindery.kube.objects.claims import EXTENDED_ANNOTATION
from bindery.scheduler.plugins.volumes.catalog import BIND_COMPLETED, OLD_CLASS, SELECTED_NODE
from bindery.scheduler.plugins.volumes.nodeindex import ZONE_LABELS

Word = Callable[[str], str]
"""Returns a word's pseudonym, or the word if it stays."""
Text = Callable[[Word, str], str]
_OF_DISKS: Final = frozenset({"UNSPECIFIED", "disks", "projects", "regions", "zones"})
"""Parts of the ids that Kubernetes gives migrated disks."""

PLAIN: Final = re.compile(r"[-+]?[A-Za-z0-9][-+A-Za-z0-9_.:, =]{0,127}|")
"""Numbers, amounts, times and words of the API; in fields that hold nothing else."""
_AMOUNTS: Final = re.compile(r"[0-9_,. ]*")
_DEVICE: Final = re.compile(
    r"(?P<node>.+)(?P<rest>-(?:{})-\d+)".format(
        "|".join(["enflame", *(v.capacity.id_part for v in VENDORS if v.capacity is not None)])
    )
)
"""HAMi's name for a device without an id of its own: its node, a part by vendor, its index."""
_MARKS: Final = re.compile(r"([:;])")

STRUCTS: Final[Mapping[str, type[msgspec.Struct]]] = {
    names.KEPT_ROOM_ANNOTATION: KeptRoom,
    names.EXCLUSIVE_DOMAINS_ANNOTATION: exclusive.HeldDomains,
    names.NUMA_ZONES_ANNOTATION: NumaPlacement,
    names.NUMA_DETAIL_ANNOTATION: NumaDetail,
}
"""Annotations with JSON; `hider` reads them as objects."""
_NUMBERS_AND_WORDS: Final = frozenset(
    {
        *(podkeys.TUNABLE_ANNOTATIONS | ranks.LABELS),
        *(names.MIN_MEMBER_KEY, names.SEGMENT_SIZE_KEY, names.RUN_TIME_LIMIT_KEY),
        *(names.PREEMPTION_DELAY_KEY, names.STALENESS_GRACE_PERIOD_KEY, names.STAGE_TIMEOUT_KEY),
        *(names.DISRUPTION_MODE_KEY, names.SKIP_GROUPER_KEY, names.KAI_SKIP_KEY),
        *(names.SPREAD_DEVICES_ANNOTATION, names.PROVISIONING_REQUEST_ANNOTATION),
        *(names.ENABLED_LABEL, names.CHARGED_PREEMPTIBILITY_ANNOTATION, names.MADE_BY_LABEL),
        *(names.GPU_INDEXES_ANNOTATION, names.SHARES_GPU_LABEL, names.FENCE_LABEL),
        *(names.GPU_MODEL_LABEL, names.GPU_MEMORY_LABEL, EXTENDED_ANNOTATION, BIND_COMPLETED),
        *(disruption.KARPENTER_ANNOTATION, disruption.SAFE_TO_EVICT_ANNOTATION),
        *(*gpushare.ASKING, gpushare.RECEIVED_TYPE_ANNOTATION, gpushare.INDEX_ANNOTATION),
        *(hami.ASSIGNED_TIME, hami.BIND_TIME, hami.BIND_PHASE, hami.NODE_POLICY),
        *(hami.DEVICE_POLICY, hami.SCORING_WEIGHTS, hami.NUMA_BIND, hami.DEVICE_MODE),
        *(hami.MIG_PREFERENCE, *(v.use_types for v in VENDORS), *(v.avoid_types for v in VENDORS)),
        podfingerprint.METHOD_ATTRIBUTE,
    }
) - {""}
_NAMES: Final = frozenset(
    {
        *(podkeys.known_annotations() | podkeys.known_labels()),
        *(exclusive.ANNOTATIONS | exclusive.LABELS | PROTOCOL_KEYS | wishes.keys(VENDORS)),
        *(*names.QUEUE_KEYS, *names.MARK_ANNOTATIONS, *names.MARK_LABELS, *ZONE_LABELS),
        *(names.HOSTNAME_LABEL, names.NAMESPACE_NAME_LABEL, names.RACK_LABEL),
        *(names.POD_NAME_LABEL, names.SELECTED_NODE_LABEL, names.STATEMENT_LABEL),
        *(names.SCALED_BY_LABEL, names.SCALING_GATE, OLD_CLASS, SELECTED_NODE),
        *(gpushare.GROUP_LABEL, gpushare.CONTAINER_ANNOTATION, gpushare.CONFIG_MAP_ANNOTATION),
        *("node.kubernetes.io/unschedulable", "node.kubernetes.io/not-ready"),
        *("node.kubernetes.io/unreachable", "pod-template-hash", "metadata.name"),
    }
) - {""}


def statement(word: Word, text: str) -> str:
    """Hide the id of a Statement: its owner's UID and a number."""
    found = re.fullmatch(r"(.+)(-\d+(?:\.\d+)?)", text)
    return f"{word(found[1])}{found[2]}" if found is not None else word(text)


def level(word: Word, text: str) -> str:
    """Hide the level of a domain in the records of exclusive domains."""
    if re.fullmatch(r"tier \d+", text):
        return text
    if " of " in text:  # a node label, and the key of pods that share a domain
        return " of ".join(word(part) for part in text.split(" of ", 1))
    tree, slash, label = text.partition("/")
    return f"{word(tree)}{slash}{word(label)}"


def path(word: Word, text: str) -> str:
    """Hide the parts of an id with slashes, such as those of disks."""
    return "/".join(part if part in _OF_DISKS else word(part) for part in text.split("/"))


def device(word: Word, text: str) -> str:
    """Hide the id of a device of HAMi's, with a MIG instance after it."""
    base, bracket, instance = text.partition("[")
    found = _DEVICE.fullmatch(base)
    hidden = f"{word(found['node'])}{found['rest']}" if found is not None else word(base)
    return f"{hidden}{bracket}{instance}" if re.fullmatch(r"[\d\]-]*", instance) else hidden


def devices(word: Word, text: str) -> str:
    """Hide the ids in a list of devices in any of HAMi's forms: JSON, or fields."""
    if text.lstrip()[:1] in ("[", "{"):
        return _json(text, lambda value: _devices(word, value, "")) or word(text)
    return "".join(
        part if part in (":", ";", "") else _fields(word, part) for part in _MARKS.split(text)
    )


def _fields(word: Word, text: str) -> str:
    first, *others = text.split(",")
    if not others or _AMOUNTS.fullmatch(text):
        return text if _AMOUNTS.fullmatch(text) else device(word, text)
    rest = (each if PLAIN.fullmatch(each) else word(each) for each in others)
    return ",".join((device(word, first) if first else "", *rest))


_HARDWARE: Final = frozenset(
    {"capacity", "index", "minor", "mode", "model", "name", "profile", "temp", "type"}
)
"""Keys of HAMi's JSON whose values name kinds of hardware."""


def _devices(word: Word, value: Any, key: str) -> Any:
    if isinstance(value, list):
        return [_devices(word, each, key) for each in value]
    if isinstance(value, dict):
        is_by_id = key == "score"
        return {
            device(word, k) if is_by_id else k: _devices(word, each, k) for k, each in value.items()
        }
    if not isinstance(value, str) or (key in _HARDWARE and PLAIN.fullmatch(value)):
        return value
    return word(value) if key in ("node", "pod") else devices(word, value)


def assignment(word: Word, data: Any) -> Any:
    """Hide the devices in the data of a BindRequest for the plugin hami."""
    if not isinstance(data, dict):
        return word(data) if isinstance(data, str) else data
    found = {key: _devices(word, each, key) for key, each in data.items()}
    if isinstance(data.get("indexes"), dict):
        found["indexes"] = {device(word, each): at for each, at in data["indexes"].items()}
    return found


def _json(text: str, change: Callable[[Any], Any]) -> str | None:
    """Return the JSON `text` after `change`; None if it is not JSON."""
    try:
        return msgspec.json.encode(change(msgspec.json.decode(text))).decode()
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None


def _plain(word: Word, text: str) -> str:
    return text if PLAIN.fullmatch(text) else word(text)


def _list(each: Text, mark: str) -> Text:
    return lambda word, text: mark.join(each(word, part.strip()) for part in text.split(mark))


def _word(word: Word, text: str) -> str:
    return word(text)


def _lock(word: Word, text: str) -> str:
    since, *pod = text.split(",")
    return ",".join((_plain(word, since), *map(word, pod)))


def _grant(word: Word, text: str) -> str:
    def change(found: Any) -> Any:
        groups = [word(str(each)) for each in found["groups"]]
        share = {k: v for k, v in found["share"].items() if k in gpushare.ASKING}
        return {"pod": word(str(found["pod"])), "share": share, "groups": groups}

    try:
        return _json(text, change) or word(text)
    except (AttributeError, KeyError, TypeError):
        return word(text)


def _texts() -> dict[str, Text]:
    found: dict[str, Text] = dict.fromkeys(_NAMES, _word)
    for vendor in VENDORS:
        keys = (vendor.register_key, vendor.allocated_key, vendor.to_allocate_key)
        found |= dict.fromkeys(keys, devices)
        found |= dict.fromkeys((*vendor.use_ids, *vendor.avoid_ids), _list(device, ","))
        for key, extra in vendor.extras:
            found[key] = _word if extra is Extra.NODE else devices
    found |= dict.fromkeys(_NUMBERS_AND_WORDS, _plain)
    found |= dict.fromkeys(ZONE_LABELS, _list(_word, "__"))
    found |= dict.fromkeys((hami.NODE_LOCK, hami.CAMBRICON_LOCK), _lock)
    found |= dict.fromkeys(
        (hami.DEVICES_RECORD, hami.MIG_ALLOCATIONS, hami.NVIDIA_PAIR_SCORES), devices
    )
    found[hami.CORDONED_DEVICES] = _list(device, ",")
    found[disruption.SAFE_VOLUMES_ANNOTATION] = _list(_word, ",")
    found[names.SCALES_FOR_ANNOTATION] = _list(_word, " ")
    found[names.STATEMENT_LABEL] = statement
    found[gpushare.RECORD_ANNOTATION] = _grant
    del found[""]
    return found


TEXTS: Final[Mapping[str, Text]] = _texts()
"""Key of a label or annotation -> the form of its value."""
KEYS: Final = TEXTS.keys() | STRUCTS.keys() | {podfingerprint.ANNOTATION}
"""All keys that stay."""
