"""Pods with shares of GPUs and their reservation pods, as watched objects."""

from collections.abc import Mapping
from typing import Any

import msgspec

from bindery.api.gpushare import (
    CONFIG_MAP_ANNOTATION,
    INDEX_ANNOTATION,
    RECORD_ANNOTATION,
    RESERVATION_NAMESPACE,
    group_labels,
    record,
    reservation_name,
)
from bindery.kube.objects import watched as kube
from bindery.scheduler.engine import Engine
from tests.scheduler.schedulerworld import pod

Share = dict[str, str]


def sharer(name: str, share: Share, groups: tuple[str, ...] = (), **more: Any) -> kube.Pod:
    """Return a pod that asks for a share; one on a node belongs to `groups`."""
    made = pod(name, 0, labels=group_labels(groups) if groups else {}, **more)
    annotations = {**made.metadata.annotations, **share, CONFIG_MAP_ANNOTATION: "x"}
    metadata = msgspec.structs.replace(made.metadata, annotations=annotations)
    return msgspec.structs.replace(made, metadata=metadata)


def reservation(group: str, on: str, *, index: str = "", **more: Any) -> kube.Pod:
    """Return the pod that holds a device of the node `on`; `index`: its recorded device."""
    made = pod(
        reservation_name(on, group),
        "1m",
        1,
        more={"memory": "32Mi"},
        labels=group_labels([group]),
        namespace=RESERVATION_NAMESPACE,
        scheduler="",
        on=on,
        **more,
    )
    annotations = {INDEX_ANNOTATION: index} if index else {}
    metadata = msgspec.structs.replace(made.metadata, annotations=annotations)
    return msgspec.structs.replace(made, metadata=metadata)


def annotated(item: kube.Pod, changes: Mapping[str, str]) -> kube.Pod:
    annotations = {**item.metadata.annotations, **changes}
    metadata = msgspec.structs.replace(item.metadata, annotations=annotations)
    return msgspec.structs.replace(item, metadata=metadata)


def recorded(item: kube.Pod, share: Share, groups: tuple[str, ...]) -> kube.Pod:
    return annotated(item, {RECORD_ANNOTATION: record(item.metadata.uid, share, groups)})


def placed(engine: Engine) -> set[str]:
    """Return the pods that the next cycle places."""
    return {each.pod_name for draft in engine.cycle() for each in draft.spec.pods}
