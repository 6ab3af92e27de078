"""Shares of GPUs in scenarios: the keys of a pod as KAI-Scheduler's annotations and labels.

Called by `objects` for every pod, and for what the binder records on it. A scenario is about HAMi's
protocol if one of its nodes has the key `shares`; then its keys mean other things, and nothing is
done here.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from bindery.api import gpushare
from bindery.api.hami.vendortable import VENDORS
from bindery.api.names import GPU_INDEXES_ANNOTATION, SPREAD_DEVICES_ANNOTATION
from bindery.scenario.jobs import ScenarioPod

if TYPE_CHECKING:
    from bindery.scenario.format import Scenario


def shares_by_hami(scenario: "Scenario") -> bool:
    """Return whether the nodes of `scenario` share GPUs by HAMi's protocol."""
    if any(device.shares for node in scenario.nodes for device in node.devices):
        return True
    given = (item.get("metadata") for item in scenario.objects if item.get("kind") == "Node")
    annotations = (meta.get("annotations") for meta in given if isinstance(meta, dict))
    keys = {vendor.register_key for vendor in VENDORS} - {""}
    return any(isinstance(each, dict) and not keys.isdisjoint(each) for each in annotations)


def asks_for_share(pod: ScenarioPod) -> bool:
    """Return whether `pod` asks for a part of each of its devices."""
    return bool(pod.gpu_fraction or pod.gpu_memory or pod.gpu_memory_percent)


def annotations(pod: ScenarioPod, *, spread_devices: bool) -> dict[str, str]:
    """Return the annotations of `pod` about the GPUs that it requests and holds."""
    found: dict[str, str] = {}
    if pod.gpu_fraction:
        found[gpushare.FRACTION_ANNOTATION] = f"{pod.gpu_fraction:.9f}".rstrip("0").rstrip(".")
    if pod.gpu_memory_percent:
        found[gpushare.FRACTION_ANNOTATION] = f"{pod.gpu_memory_percent / 100:g}"
    if pod.gpu_memory:
        found[gpushare.MEMORY_ANNOTATION] = str(pod.gpu_memory)
    if pod.gpu_devices is not None and (asks_for_share(pod) or pod.gpu_devices != 1):
        found[gpushare.DEVICES_ANNOTATION] = str(pod.gpu_devices)
    if found:  # as the admission webhook leaves it
        found[gpushare.CONFIG_MAP_ANNOTATION] = "scenario-shared-gpu"
    if pod.gpu:
        found[GPU_INDEXES_ANNOTATION] = ",".join(pod.gpu)
    if spread_devices:
        found[SPREAD_DEVICES_ANNOTATION] = "true"
    return found


def recorded(annotations: Mapping[str, str], labels: Mapping[str, str], uid: str) -> dict[str, str]:
    """Return the binder's record of the share of the pod `uid`, for a pod on a node."""
    if not gpushare.asks_for_share(annotations):
        return {}
    share = {key: value for key, value in annotations.items() if key in gpushare.ASKING}
    record = gpushare.record(uid, share, gpushare.groups(labels))
    return {gpushare.RECORD_ANNOTATION: record}


def labels(pod: ScenarioPod) -> dict[str, str]:
    """Return the labels by which a `pod` that is on a node belongs to GPU groups."""
    if not pod.node or not pod.gpu or not asks_for_share(pod):
        return {}
    return gpushare.group_labels([f"{pod.node}-{index}" for index in pod.gpu])
