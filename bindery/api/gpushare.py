"""Shares of GPUs: reads requests in annotations of pods, and finds their problems.

KAI-Scheduler's protocol (v0.17: `gpu-fraction`, `gpu-memory`, `gpu-fraction-num-devices`). Used by
the scheduler, the binder's plugin and the admission webhook, so that all three give the same
reasons. Pure. Invariant: `read` returns a share only for a pod without `problems`.

The annotations are the request of a pod, and the pod's owner may change them at any time. The
granted share is in the binder's record.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from hashlib import sha256
from typing import Final

from bindery.api.names import GPU_RESOURCE, GROUP, MIG_PREFIX
from bindery.api.shown import quoted

FRACTION_ANNOTATION: Final = "gpu-fraction"
"""Annotation of a pod: the part of each device, above 0 and below 1."""
MEMORY_ANNOTATION: Final = "gpu-memory"
"""Annotation of a pod: MiB of each device."""
DEVICES_ANNOTATION: Final = "gpu-fraction-num-devices"
"""Annotation of a pod: number of devices; default 1."""
CONTAINER_ANNOTATION: Final = "gpu-fraction-container-name"
"""Annotation of a pod: the container that gets the devices; default: the first."""
ANNOTATIONS: Final = (
    FRACTION_ANNOTATION,
    MEMORY_ANNOTATION,
    DEVICES_ANNOTATION,
    CONTAINER_ANNOTATION,
)
ASKING: Final = frozenset(ANNOTATIONS[:3])
"""The annotations with the requested amount."""
CONFIG_MAP_ANNOTATION: Final = "runai/shared-gpu-configmap"
"""Annotation of a pod: prefix of the names of the ConfigMaps with its container's devices."""
RECEIVED_TYPE_ANNOTATION: Final = "received-resource-type"
"""Annotation of a pod: the form in which it got its GPUs, written shortly before its binding."""
RECORD_ANNOTATION: Final = f"{GROUP}/granted-gpu-share"
"""Annotation of a bound pod: the granted share, written by the binder at the binding."""
GROUP_LABEL: Final = "runai-gpu-group"
"""Label of a pod with a share of one device, and of reservation pods: the GPU group."""
GROUP_LABEL_PREFIX: Final = GROUP_LABEL + "/"
"""Prefix of labels of a pod with shares of several devices; the name of a group follows."""
INDEX_ANNOTATION: Final = "run.ai/reserve_for_gpu_index"
"""Annotation of a reservation pod: its device, as the container sees it."""
RESERVATION_NAMESPACE: Final = "kai-resource-reservation"
RESERVATION_APP: Final = "kai-resource-reservation"
"""The value of the label `app` of reservation pods."""
RESERVATION_PREFIX: Final = "gpu-reservation-"
RESERVATION_REQUESTS: Final[Mapping[str, str]] = {"cpu": "1m", "memory": "32Mi"}
"""The default requests of a reservation pod beside its GPU."""

PLUGIN: Final = "gpusharing"
"""Name of the scheduler's plugin and of the binder's plugin."""

NOT_PREPARED: Final = (
    f"it has no annotation {CONFIG_MAP_ANNOTATION}, so its container cannot read its devices: "
    "it was created while the admission webhook was not running; re-create it"
)

WHOLE: Final = 10**9
"""Units of one device, fine enough that shares by memory add up to exactly one device."""
_MOST_DEVICES: Final = 64
_HAMI_RESOURCES: Final = frozenset(
    {"nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"}
)
_NUMBER: Final = re.compile(
    r"[+-]?([0-9]{1,18}(\.[0-9]{0,18})?|\.[0-9]{1,18})([eE][+-]?[0-9]{1,2})?"
)
_INTEGER: Final = re.compile(r"[0-9]{1,12}")


@dataclass(frozen=True, slots=True)
class GpuShare:
    """A part of each of `devices` devices, by portion or by memory."""

    portion: int = 0
    """Portion of each device, in units of 1 / `WHOLE`; 0 if memory is requested."""
    memory_mib: int = 0
    devices: int = 1

    def portion_of(self, device_memory_mib: int) -> int | None:
        """Return the portion of a device with this amount of memory; None if that is 0, unknown.

        The portion is above `WHOLE` if the device has less memory than requested.
        """
        if self.portion:
            return self.portion
        return self.memory_mib * WHOLE // device_memory_mib if device_memory_mib else None

    def __str__(self) -> str:
        of = f" of each of {self.devices} GPUs" if self.devices > 1 else " of a GPU"
        if self.memory_mib:
            return f"{self.memory_mib} MiB{of}"
        return f"{Decimal(self.portion) / WHOLE:f}".rstrip("0").rstrip(".") + of


@dataclass(frozen=True, slots=True)
class Grant:
    """The granted share of a pod, and the GPU group on each of its devices."""

    share: GpuShare
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GpuAsk:
    """The fields of a pod that decide whether its request for GPUs is valid."""

    annotations: Mapping[str, str]
    containers: Sequence[str]
    """Names of containers and init containers."""
    resources: frozenset[str]
    """Resources in requests or limits of any container, with amounts other than 0."""


def asks_for_share(annotations: Mapping[str, str]) -> bool:
    """Return whether a pod with these annotations requests a share of a GPU, valid or not."""
    return not ASKING.isdisjoint(annotations)


def problems(ask: GpuAsk) -> list[str]:
    """Return the problems of the requested share, one sentence each."""
    if not asks_for_share(ask.annotations):
        return []
    return [*wrong_values(ask.annotations), *_wrong_company(ask)]


def wrong_values(annotations: Mapping[str, str]) -> list[str]:
    """Return the problems of the annotations alone."""
    found = []
    fraction, memory = annotations.get(FRACTION_ANNOTATION), annotations.get(MEMORY_ANNOTATION)
    devices = annotations.get(DEVICES_ANNOTATION)
    if fraction is not None and memory is not None:
        found.append(f"{FRACTION_ANNOTATION} and {MEMORY_ANNOTATION} cannot both be given")
    if fraction is not None and not _is_fraction(fraction):
        found.append(f"{FRACTION_ANNOTATION} must be above 0 and below 1, not {quoted(fraction)}")
    if memory is not None and not _is_positive(memory):
        found.append(
            f"{MEMORY_ANNOTATION} must be a whole number of MiB above 0, not {quoted(memory)}"
        )
    if devices is not None:
        if fraction is None and memory is None:
            needs = f"{FRACTION_ANNOTATION} or {MEMORY_ANNOTATION}"
            found.append(f"{DEVICES_ANNOTATION} has no effect without {needs}")
        if not _is_positive(devices) or int(devices) > _MOST_DEVICES:
            found.append(
                f"{DEVICES_ANNOTATION} must be a whole number from 1 to {_MOST_DEVICES}, "
                f"not {quoted(devices)}"
            )
    return found


def read(annotations: Mapping[str, str]) -> GpuShare | None:
    """Return the share in the annotations; None if there is none, or an invalid one."""
    if not asks_for_share(annotations) or any(wrong_values(annotations)):
        return None
    devices = int(annotations.get(DEVICES_ANNOTATION, "1"))
    if MEMORY_ANNOTATION in annotations:
        return GpuShare(memory_mib=int(annotations[MEMORY_ANNOTATION]), devices=devices)
    return GpuShare(portion=int(Decimal(annotations[FRACTION_ANNOTATION]) * WHOLE), devices=devices)


def as_annotations(share: GpuShare) -> dict[str, str]:
    """Return annotations from which `read` returns `share`."""
    written: dict[str, str] = {}
    if share.memory_mib:
        written[MEMORY_ANNOTATION] = str(share.memory_mib)
    else:
        written[FRACTION_ANNOTATION] = f"{Decimal(share.portion) / WHOLE:f}"
    if share.devices > 1:
        written[DEVICES_ANNOTATION] = str(share.devices)
    return written


def record(pod_uid: str, share: Mapping[str, str], groups: Sequence[str]) -> str:
    """Return the value of `RECORD_ANNOTATION`; `share`: the granted share as annotations."""
    return json.dumps({"pod": pod_uid, "share": dict(share), "groups": list(groups)})


def read_record(annotations: Mapping[str, str], pod_uid: str) -> Grant | None:
    """Return the grant of the pod; None if the record is missing, broken or another pod's."""
    text = annotations.get(RECORD_ANNOTATION, "")
    if not text:
        return None
    try:
        found = json.loads(text)
        names, share = found["groups"], {str(k): str(v) for k, v in found["share"].items()}
        is_meant = found["pod"] == pod_uid and all(isinstance(name, str) for name in names)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    granted = read(share)
    return Grant(granted, tuple(names)) if is_meant and granted is not None else None


def groups(labels: Mapping[str, str]) -> tuple[str, ...]:
    """Return the GPU groups in the labels of a pod, sorted."""
    found = {value for name, value in labels.items() if name.startswith(GROUP_LABEL_PREFIX)}
    if GROUP_LABEL in labels:
        found.add(labels[GROUP_LABEL])
    return tuple(sorted(found))


def is_group_label(name: str) -> bool:
    """Return whether the label `name` is a pod's GPU group."""
    return name == GROUP_LABEL or name.startswith(GROUP_LABEL_PREFIX)


def group_labels(names: Sequence[str]) -> dict[str, str]:
    """Return the labels of a pod with shares of devices of the groups `names`."""
    if len(names) == 1:
        return {GROUP_LABEL: names[0]}
    return {f"{GROUP_LABEL_PREFIX}{name}": name for name in names}


def reservation_name(node: str, group: str) -> str:
    """Return the name of the reservation pod of `group` on `node`; the same in every attempt."""
    return RESERVATION_PREFIX + sha256(f"{node}/{group}".encode()).hexdigest()[:16]


def is_reservation(namespace: str, labels: Mapping[str, str]) -> bool:
    """Return whether a pod is a reservation pod, which holds a device for a group."""
    return namespace == RESERVATION_NAMESPACE and GROUP_LABEL in labels


def _wrong_company(ask: GpuAsk) -> list[str]:
    found = []
    whole = sorted(
        name
        for name in ask.resources
        if name == GPU_RESOURCE or name.startswith(MIG_PREFIX) or name in _HAMI_RESOURCES
    )
    if whole:
        found.append(f"a share of a GPU and {', '.join(whole)} cannot both be requested")
    name = ask.annotations.get(CONTAINER_ANNOTATION)
    if name is not None and name not in ask.containers:
        found.append(
            f"{CONTAINER_ANNOTATION} names {quoted(name)}, and the pod has no such container"
        )
    return found


def _is_fraction(text: str) -> bool:
    if _NUMBER.fullmatch(text) is None:
        return False
    return 1 <= Decimal(text) * WHOLE < WHOLE


def _is_positive(text: str) -> bool:
    return _INTEGER.fullmatch(text) is not None and int(text) > 0
