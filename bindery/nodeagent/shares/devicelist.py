"""How a device plugin passes devices to NVIDIA's container runtime."""

from enum import StrEnum


class DeviceList(StrEnum):
    """How the devices are passed to NVIDIA's container runtime."""

    ENVVAR = "envvar"
    """NVIDIA_VISIBLE_DEVICES, as HAMi does."""
    VOLUME_MOUNTS = "volume-mounts"
    """Mounts, for a runtime that ignores the variable of unprivileged containers."""
    CDI = "cdi"
    """CDI devices, which the kubelet passes to the runtime of containers."""
