"""ConfigMaps with a container's devices, to which its environment refers.

Names and keys are KAI-Scheduler's (v0.17, pkg/binder/common). The webhook puts the references into
the pod (`admission`); `plugin` writes the values before the pod is bound. Invariant: a ConfigMap
that belongs to another pod is never written.
"""

from collections.abc import Sequence
from typing import Final

from bindery.api.gpushare import CONFIG_MAP_ANNOTATION, CONTAINER_ANNOTATION, NOT_PREPARED
from bindery.binder.plugins.gpusharing.objects import Sharer, config_map
from bindery.binder.plugins.interface import PluginError
from bindery.kube.client import Client
from bindery.kube.errors import NotFoundError
from bindery.kube.objects.resources import CONFIG_MAPS
from bindery.kube.objects.watched import ConfigMap, OwnerReference

VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
PORTION: Final = "GPU_PORTION"
_OLD_VISIBLE_DEVICES: Final = "RUNAI-VISIBLE-DEVICES"
OLD_PORTION: Final = "RUNAI_NUM_OF_GPUS"
_CDI_DEVICE: Final = "k8s.device-plugin.nvidia.com/gpu="


def container_key(names: Sequence[str], init_names: Sequence[str], wanted: str) -> str:
    """Return the index of the container that gets the devices, with `i` for an init container."""
    if wanted in init_names:
        return f"i{init_names.index(wanted)}"
    return str(names.index(wanted)) if wanted in names else "0"


def names_of(pod: Sharer) -> tuple[str, str]:
    """Return the names of two ConfigMaps: with the devices, and with variables.

    Raises:
        PluginError: the pod was never prepared for a share.
    """
    annotations = pod.metadata.annotations
    prefix = annotations.get(CONFIG_MAP_ANNOTATION, "")
    if not prefix:
        raise PluginError(NOT_PREPARED, reason="NotPrepared", permanent=True)
    key = container_key(
        [container.name for container in pod.spec.containers],
        [container.name for container in pod.spec.init_containers or ()],
        annotations.get(CONTAINER_ANNOTATION, ""),
    )
    return f"{prefix}-{key}", f"{prefix}-{key}-evar"


async def hand_over(
    client: Client, pod: Sharer, devices: Sequence[str], portion: str, *, uses_cdi: bool
) -> None:
    """Write the `devices` that the container of `pod` may use, and its portion of each.

    Raises:
        PluginError: the pod was never prepared, or refers to a ConfigMap of another pod.
    """
    visible = ",".join(f"{_CDI_DEVICE}{each}" if uses_cdi else each for each in devices)
    data = {
        VISIBLE_DEVICES: visible,
        _OLD_VISIBLE_DEVICES: visible,
        PORTION: portion,
        OLD_PORTION: portion,
    }
    name, variables = names_of(pod)
    await _write(client, pod, name, data)
    await _write(client, pod, variables, {PORTION: portion})


async def handed_over(client: Client, pod: Sharer) -> list[str]:
    """Return the devices that `hand_over` has written for `pod`; empty without a ConfigMap."""
    try:
        found = await client.get(CONFIG_MAPS, names_of(pod)[0], pod.metadata.namespace)
    except (NotFoundError, PluginError):
        return []
    text = (found.data or {}).get(VISIBLE_DEVICES, "") if _belongs_to(found, pod) else ""
    return [each.removeprefix(_CDI_DEVICE) for each in text.split(",")] if text else []


async def take_back(client: Client, pod: Sharer) -> None:
    """Undo `hand_over` for `pod`."""
    if CONFIG_MAP_ANNOTATION not in pod.metadata.annotations:
        return
    for name in names_of(pod):
        try:
            found = await client.get(CONFIG_MAPS, name, pod.metadata.namespace)
            if _belongs_to(found, pod):
                await client.delete(
                    CONFIG_MAPS, name, pod.metadata.namespace, uid=found.metadata.uid
                )
        except NotFoundError:
            continue


async def _write(client: Client, pod: Sharer, name: str, data: dict[str, str]) -> None:
    meta = pod.metadata
    try:
        found = await client.get(CONFIG_MAPS, name, meta.namespace)
    except NotFoundError:
        owner = OwnerReference(api_version="v1", kind="Pod", name=meta.name, uid=meta.uid)
        body = config_map(name, meta.namespace, owner, data)
        await client.create(CONFIG_MAPS, body, meta.namespace)
        return
    if not _belongs_to(found, pod):
        message = f"the ConfigMap {name} already exists and does not belong to the pod"
        raise PluginError(message, reason="ConfigMapTaken", permanent=True)
    if found.data != data:
        patch = {"metadata": {"uid": found.metadata.uid}, "data": data}
        await client.patch(CONFIG_MAPS, name, patch, namespace=meta.namespace)


def _belongs_to(found: ConfigMap, pod: Sharer) -> bool:
    return any(owner.uid == pod.metadata.uid for owner in found.metadata.owner_references)
