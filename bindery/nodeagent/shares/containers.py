"""What a container with shares gets: variables, mounts and devices. Pure.

NVIDIA's container runtime and HAMi-core's library (`nodeagent.hamicore`) read these names.
"""

from dataclasses import dataclass
from typing import Final

from bindery.api.hami.poddevices import Slot
from bindery.nodeagent.hamicore import ContainerMount, HamiCore
from bindery.nodeagent.pod_objects import NodeContainer
from bindery.nodeagent.shares.devicelist import DeviceList

_CDI_DEVICE: Final = "k8s.device-plugin.nvidia.com/gpu="
_DEVICES_DIRECTORY: Final = "/var/run/nvidia-container-devices"
_NO_FILE: Final = "/dev/null"
_DISABLED: Final = "CUDA_DISABLE_CONTROL"
_TRUE: Final = ("1", "t", "true")


@dataclass(frozen=True)
class Grant:
    """What a container gets."""

    variables: dict[str, str]
    mounts: tuple[ContainerMount, ...] = ()
    cdi_devices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Handing:
    """How this node hands shares over."""

    device_list: DeviceList
    core: HamiCore
    is_oversubscribed: bool = False
    """Whether more memory is promised than the devices have."""


def grant(
    devices: Slot, container: NodeContainer, pod_uid: str, handing: Handing, token: str
) -> Grant:
    """Return what `container` gets with `devices`; `token`: unique, for the name of a file."""
    uuids = list(dict.fromkeys(device.device for device in devices))
    variables = {
        f"CUDA_DEVICE_MEMORY_LIMIT_{index}": f"{device.memory_mib}m"
        for index, device in enumerate(devices)
    }
    variables["CUDA_DEVICE_SM_LIMIT"] = str(devices[0].cores)
    variables["CUDA_DEVICE_MEMORY_SHARED_CACHE"] = handing.core.counts(token)
    if handing.is_oversubscribed:
        variables["CUDA_OVERSUBSCRIBE"] = "true"
    core = handing.core
    is_loaded = not is_control_disabled(container)
    mounts = core.mounts(core.of_container(pod_uid, container.name), is_loaded=is_loaded)
    match handing.device_list:
        case DeviceList.ENVVAR:
            variables["NVIDIA_VISIBLE_DEVICES"] = ",".join(uuids)
        case DeviceList.VOLUME_MOUNTS:
            variables["NVIDIA_VISIBLE_DEVICES"] = _DEVICES_DIRECTORY
            mounts += tuple(
                ContainerMount(f"{_DEVICES_DIRECTORY}/{each}", _NO_FILE) for each in uuids
            )
        case DeviceList.CDI:
            # "void": the runtime's own hook adds nothing to what CDI has given.
            variables["NVIDIA_VISIBLE_DEVICES"] = "void"
            return Grant(variables, mounts, tuple(f"{_CDI_DEVICE}{each}" for each in uuids))
    return Grant(variables, mounts)


def is_control_disabled(container: NodeContainer) -> bool:
    """Return whether the container itself asks HAMi-core not to limit it."""
    given = (each.value for each in container.env or () if each.name == _DISABLED)
    return any(value.lower() in _TRUE for value in given)
