"""The effects of the binder that plugins expect, for rehearsals and scenarios."""

import msgspec

from bindery.api import exclusive, keptroom, preemptibility
from bindery.api.gpushare import group_labels
from bindery.api.names import (
    CHARGED_PREEMPTIBILITY_ANNOTATION,
    EXCLUSIVE_DOMAINS_ANNOTATION,
    KEPT_ROOM_ANNOTATION,
)
from bindery.kube.objects.bindrequests import PodBinding
from bindery.kube.objects.watched import KubeObject, Pod
from bindery.scheduler.plugins.interface.state import BindEffects
from bindery.scheduler.plugins.registry import PluginSet


def bind_effects(plugins: PluginSet, pod: Pod, binding: PodBinding) -> list[KubeObject]:
    """Return the objects, including `pod` without its node, after the work of the binder."""
    effects: list[KubeObject] = []
    if binding.selected_gpu_groups:
        labels = {**pod.metadata.labels, **group_labels(binding.selected_gpu_groups)}
        metadata = msgspec.structs.replace(pod.metadata, labels=labels)
        pod = msgspec.structs.replace(pod, metadata=metadata)
        effects.append(pod)
    metadata = msgspec.structs.replace(
        pod.metadata, annotations={**pod.metadata.annotations, **_records(binding)}
    )
    pod = msgspec.structs.replace(pod, metadata=metadata)
    effects.append(pod)
    for plugin in plugins.of(BindEffects):
        data = binding.plugin_data.get(plugin.name, {})
        for item in plugin.bind_effects(pod, binding.selected_node, data):
            pod = item if isinstance(item, Pod) else pod
            effects.append(item)
    return effects


def _records(binding: PodBinding) -> dict[str, str]:
    """Return what the binder records on the pod."""
    charged_as = preemptibility.word(not binding.non_preemptible)
    records: dict[str, str] = {CHARGED_PREEMPTIBILITY_ANNOTATION: charged_as}
    room = keptroom.from_data(binding.plugin_data.get(keptroom.PLUGIN_DATA))
    if room is not None:
        records[KEPT_ROOM_ANNOTATION] = room.record(binding.pod_uid)
    held = exclusive.from_data(binding.plugin_data.get(exclusive.PLUGIN_DATA))
    if held is not None:
        records[EXCLUSIVE_DOMAINS_ANNOTATION] = held.record(binding.pod_uid)
    return records
