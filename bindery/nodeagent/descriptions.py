"""What a Node object has about its machine that decides nothing: programs, versions, identities."""

from dataclasses import dataclass
from typing import Final

from bindery import __version__

_HOLLOW_IMAGE_BYTES: Final = 705_000


@dataclass(frozen=True)
class NodeDescription:
    """`NodeSystemInfo`, the images, and the message of the conditions.

    Attributes:
        note: the message of all conditions; empty for the kubelet's own.
        image_bytes: sizes of the images on the node.
    """

    os_image: str
    kernel_version: str
    runtime: str
    agent: str
    architecture: str = "amd64"
    machine_id: str = ""
    system_uuid: str = ""
    boot_id: str = ""
    note: str = ""
    image_bytes: tuple[int, ...] = ()


HOLLOW: Final = NodeDescription(
    os_image="hollow node",
    kernel_version="",
    runtime="hollow://",
    agent=f"bindery-hollow-{__version__}",
    note="a hollow node: no machine is behind it",
    image_bytes=(_HOLLOW_IMAGE_BYTES,),
)
"""The description of a node without a machine."""
