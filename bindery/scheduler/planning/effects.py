"""The effects of the binder that plugins expect, for rehearsals and scenarios."""

import msgspec

from bindery.api import keptroom
from bindery.api.gpushare import group_labels
from bindery.api.names import KEPT_ROOM_ANNOTATION
from bindery.kube.bindrequests import PodBinding
from bindery.kube.objects import KubeObject, Pod
from bindery.scheduler.plugins.registry import PluginSet


def bind_effects(plugins: PluginSet, pod: Pod, binding: PodBinding) -> list[KubeObject]:
    """Return the objects, including `pod`, after the work of the binder.

    The node of the pod is not set yet.
    """
    effects: list[KubeObject] = []
    if binding.selected_gpu_groups:
        labels = {**pod.metadata.labels, **group_labels(binding.selected_gpu_groups)}
        metadata = msgspec.structs.replace(pod.metadata, labels=labels)
        pod = msgspec.structs.replace(pod, metadata=metadata)
        effects.append(pod)
    room = keptroom.from_data(binding.plugin_data.get(keptroom.PLUGIN_DATA))
    if room is not None:
        record = {KEPT_ROOM_ANNOTATION: room.record(binding.pod_uid)}
        annotations = {**pod.metadata.annotations, **record}
        metadata = msgspec.structs.replace(pod.metadata, annotations=annotations)
        pod = msgspec.structs.replace(pod, metadata=metadata)
        effects.append(pod)
    for name, plugin in plugins.effects:
        data = binding.plugin_data.get(name, {})
        for item in plugin.bind_effects(pod, binding.selected_node, data):
            pod = item if isinstance(item, Pod) else pod
            effects.append(item)
    return effects
