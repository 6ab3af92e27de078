"""The annotations and labels of pods that Bindery reads or writes, with their writers.

The chart's admission policy is made from them: `python -m bindery.api.podkeys FILE`, run by `make
crds`, writes the protected keys. `mistakes.py` beside this module finds unknown keys.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from bindery.api import gpushare, names
from bindery.api.hami import assignment
from bindery.api.hami import names as hami_names

GROUPER_KEYS: Final = frozenset(
    {
        names.MIN_MEMBER_KEY,
        names.PRIORITY_CLASS_KEY,
        names.TOPOLOGY_KEY,
        names.TOPOLOGY_REQUIRED_KEY,
        names.TOPOLOGY_PREFERRED_KEY,
        names.SEGMENT_SIZE_KEY,
        names.SEGMENT_REQUIRED_KEY,
        names.SEGMENT_PREFERRED_KEY,
        names.RUN_TIME_LIMIT_KEY,
        names.PREEMPTION_DELAY_KEY,
        names.STALENESS_GRACE_PERIOD_KEY,
        names.STAGE_TIMEOUT_KEY,
        names.DISRUPTION_MODE_KEY,
        names.SKIP_GROUPER_KEY,
        names.USER_KEY,
    }
)
"""Keys that owners of pods write for the grouper, as labels or annotations."""
TUNABLE_ANNOTATIONS: Final = frozenset(
    {
        names.PREEMPTIBLE_ANNOTATION,
        names.EXPECTED_RUNTIME_ANNOTATION,
        names.DO_NOT_DISRUPT_ANNOTATION,
        names.LAST_CHECKPOINT_ANNOTATION,
    }
)
"""Annotations that owners of pods write, also on bound pods."""
OWNER_ANNOTATIONS: Final = (
    TUNABLE_ANNOTATIONS
    | GROUPER_KEYS
    | {
        names.POD_GROUP_ANNOTATION,
        names.SPREAD_DEVICES_ANNOTATION,
        names.PROVISIONING_REQUEST_ANNOTATION,
    }
)
"""All annotations that owners of pods write."""
OWNER_LABELS: Final = GROUPER_KEYS | {
    names.QUEUE_LABEL,
    names.NODE_POOL_LABEL,
    names.SUB_GROUP_LABEL,
    names.ROLE_LABEL,
    names.ENABLED_LABEL,
}
"""All labels that owners of pods write."""


@dataclass(frozen=True)
class Records:
    """Keys that a component of Bindery, or a device plugin, writes on pods."""

    annotations: frozenset[str]
    labels: frozenset[str]
    label_prefix: str = ""
    """Prefix of further labels of these records; "" for none."""
    frozen_annotations: frozenset[str] = frozenset()
    """Annotations that owners write, but not after the binding."""


QUEUE_RECORDS: Final = Records(
    frozenset(
        {
            names.CHARGED_QUEUE_ANNOTATION,
            names.CHARGED_GROUP_ANNOTATION,
            names.CHARGED_PREEMPTIBILITY_ANNOTATION,
            names.EXCLUSIVE_DOMAINS_ANNOTATION,
            names.NUMA_ZONES_ANNOTATION,
            names.KEPT_ROOM_ANNOTATION,
        }
    ),
    frozenset(),
)
"""Records of a pod's queue; after the binding, with all other keys of Bindery's group."""
SHARE_RECORDS: Final = Records(
    frozenset(
        {
            gpushare.RECEIVED_TYPE_ANNOTATION,
            gpushare.RECORD_ANNOTATION,
            names.GPU_INDEXES_ANNOTATION,
        }
    ),
    frozenset({gpushare.GROUP_LABEL, names.SHARES_GPU_LABEL}),
    gpushare.GROUP_LABEL_PREFIX,
    frozenset({*gpushare.ANNOTATIONS, gpushare.CONFIG_MAP_ANNOTATION}),
)
"""Records of a pod's shares of GPUs."""
DEVICE_RECORDS: Final = Records(
    assignment.PROTOCOL_KEYS
    | {hami_names.DEVICES_RECORD, hami_names.ISOLATION, names.GPUS_IDLE_SINCE_ANNOTATION},
    frozenset({hami_names.ASSIGNED_NODE}),
)
"""Records of a pod's devices in HAMi's protocol, and of their use."""

UNGUARDED_RECORDS: Final = frozenset({names.VOID_BINDINGS_ANNOTATION})
"""Annotations that a component of Bindery writes, and that nothing reads: owners may write them."""


def known_annotations() -> frozenset[str]:
    """Return the annotations of pods that are in use."""
    records = QUEUE_RECORDS.annotations | SHARE_RECORDS.annotations | DEVICE_RECORDS.annotations
    return OWNER_ANNOTATIONS | UNGUARDED_RECORDS | records


def known_labels() -> frozenset[str]:
    """Return the labels of pods that are in use."""
    records = QUEUE_RECORDS.labels | SHARE_RECORDS.labels | DEVICE_RECORDS.labels
    return OWNER_LABELS | records


def guarded() -> dict[str, object]:
    """Return the data for the chart's policy."""

    def part(records: Records) -> dict[str, object]:
        return {
            "annotations": sorted(records.annotations),
            "labels": sorted(records.labels),
            "labelPrefix": records.label_prefix,
            "frozenAnnotations": sorted(records.frozen_annotations),
        }

    others = SHARE_RECORDS.annotations | SHARE_RECORDS.labels | DEVICE_RECORDS.annotations
    of_others = {key for key in others if key.startswith(f"{names.GROUP}/")}
    return {
        "prefix": f"{names.GROUP}/",
        "besides": sorted(of_others | TUNABLE_ANNOTATIONS),
        "queue": part(QUEUE_RECORDS),
        "gpus": part(SHARE_RECORDS),
        "devices": part(DEVICE_RECORDS),
    }


def write(path: Path) -> None:
    """Write the data for the chart's policy to `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(guarded(), sort_keys=False)
    path.write_text(f"# Written by `make crds`.\n{text}", encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
