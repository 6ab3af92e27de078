"""HAMi's keys that do not depend on the vendor, and their values.

Used by the plugins `hami` of the scheduler and the binder, and by tests. The keys of a vendor are
in its row of `vendortable`.
"""

from enum import StrEnum
from typing import Final

# On pods, written by the scheduler
ASSIGNED_NODE: Final = "hami.io/vgpu-node"
"""The chosen node; also a label, where the name is short enough for one."""
ASSIGNED_TIME: Final = "hami.io/vgpu-time"
"""Time of the choice of the node: seconds since the epoch, decimal."""
MIG_ALLOCATIONS: Final = "hami.io/vgpu-mig-allocations"

# On pods, written at the binding and by the device plugin
BIND_TIME: Final = "hami.io/bind-time"
"""Seconds since the epoch, decimal. The device plugin only checks for presence."""
BIND_PHASE: Final = "hami.io/bind-phase"

# On pods, written by users
NODE_POLICY: Final = "hami.io/node-scheduler-policy"
DEVICE_POLICY: Final = "hami.io/gpu-scheduler-policy"
SCORING_WEIGHTS: Final = "hami.io/device-scoring-weights"
NUMA_BIND: Final = "nvidia.com/numa-bind"
DEVICE_MODE: Final = "nvidia.com/vgpu-mode"
MIG_PREFERENCE: Final = "nvidia.com/mig-profile-preference"

# On pods, Bindery's own
DEVICES_RECORD: Final = "scheduling.bindery.dev/hami-devices"
"""The binder's record of a pod's devices, as JSON: UID, node and devices.

The device plugin deletes and users may change HAMi's own keys. The chart's admission policy decides
which accounts may write this key."""
ISOLATION: Final = "scheduling.bindery.dev/device-isolation"
"""Written by Bindery's device plugin when the containers have their shares: an `Isolation`."""

# On nodes
NODE_LOCK: Final = "hami.io/mutex.lock"
CAMBRICON_LOCK: Final = "cambricon.com/dsmlu.lock"
CORDONED_DEVICES: Final = "hami.io/device-cordon"
"""UUIDs, separated by commas, that new pods must not get."""
NVIDIA_PAIR_SCORES: Final = "hami.io/node-nvidia-score"

LABEL_LENGTH: Final = 63
"""The maximum length of a label's value in Kubernetes."""


class BindPhase(StrEnum):
    """The progress of a pod between its binding and the allocation of its devices."""

    ALLOCATING = "allocating"
    """Written before the binding."""
    SUCCESS = "success"
    """Written by the device plugin: the containers have their devices."""
    FAILED = "failed"
    """Written by the device plugin."""

    @property
    def is_final(self) -> bool:
        """Whether the device plugin has finished with the pod."""
        return self is not BindPhase.ALLOCATING


class Isolation(StrEnum):
    """What holds the containers of a pod to their shares of memory and cores."""

    HAMI_CORE = "hami-core"
    """HAMi-core's library is loaded into their processes."""
    NONE = "none"
    """Nothing: the library is not on the node, or a container has turned it off."""


class DeviceModeWord(StrEnum):
    """How a device is shared."""

    HAMI_CORE = "hami-core"
    MIG = "mig"
    MPS = "mps"
