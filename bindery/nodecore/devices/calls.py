"""The calls to device plugins that a plan leaves open; the caller makes them and reports answers.

No manager calls a plugin: one that does not answer holds only the pod that waits for it.
"""

from dataclasses import dataclass
from typing import Final

from bindery.nodecore.devices.state import Ids

DIAL_TIMEOUT_S: Final = 10.0
PRE_START_TIMEOUT_S: Final = 30.0
"""`KubeletPreStartContainerRPCTimeoutInSecs` of the device plugin API."""


@dataclass(frozen=True)
class PluginOptions:
    """What a device plugin announces.

    Attributes:
        prefers: whether it answers `GetPreferredAllocation`.
        pre_start: whether it is called before each start of a container.
    """

    prefers: bool = False
    pre_start: bool = False


NO_OPTIONS: Final = PluginOptions()


@dataclass(frozen=True)
class PreferenceCall:
    """GetPreferredAllocation: which of the available devices the plugin prefers.

    Attributes:
        available: the ids to choose from, with all of `included`.
        included: the ids that the container gets in any case.
        size: how many devices the container gets.
    """

    pod_uid: str
    container: str
    resource: str
    available: Ids
    included: Ids
    size: int


@dataclass(frozen=True)
class AllocateCall:
    """Allocate: the devices that are reserved for a container."""

    pod_uid: str
    container: str
    resource: str
    ids: Ids


@dataclass(frozen=True)
class PreStartCall:
    """PreStartContainer: the devices of a container that is about to start."""

    pod_uid: str
    container: str
    resource: str
    ids: Ids
