"""The program of a reservation pod: it reports the pod's GPU and keeps the GPU allocated.

Run in the pod by `bindery reservation hold`. The protocol is KAI-Scheduler's (v0.17,
pkg/resourcereservation): the program writes the GPU into an annotation of its own pod, and the
binder waits for the annotation.
"""

import asyncio
import logging
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from bindery.api.gpushare import INDEX_ANNOTATION
from bindery.kube.client import Client
from bindery.kube.objects.resources import PODS, metadata_only
from bindery.observability.plainlogs import with_fields

_NO_DEVICE: Final = frozenset({"", "void", "none", "all"})
"""Values of the variable that name no device; then the devices were passed in another way."""
_DEVICE: Final = re.compile(r"GPU-[0-9a-fA-F-]{8,64}|[0-9]{1,4}")
_QUERY: Final = ("nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader")

# The standard library's logging: structlog's import takes longer than the rest of this program.
_log: Final = logging.getLogger(__name__)


class NoDeviceError(Exception):
    """The container sees no GPU or more than one GPU."""


@dataclass(frozen=True)
class Identity:
    """Namespace and name of the program's own pod."""

    namespace: str
    name: str


async def visible_device(environment: Mapping[str, str]) -> str:
    """Return the name of this container's GPU, as containers that share the GPU request it.

    Raises:
        NoDeviceError: there is no GPU, or more than one candidate.
    """
    devices = environment.get("NVIDIA_VISIBLE_DEVICES", "").strip()
    if devices in _NO_DEVICE:
        devices = await _ask_driver()
    # A CDI name has the form vendor.com/gpu=GPU-...
    device = devices.rpartition("=")[2]
    if _DEVICE.fullmatch(device) is None:
        raise NoDeviceError(f"one GPU should be visible, not {devices!r}")
    return device


async def hold(client: Client, pod: Identity, device: str) -> None:
    """Write `device` into the annotation of `pod`, then sleep until cancelled."""
    patch = {"metadata": {"annotations": {INDEX_ANNOTATION: device}}}
    await client.patch(metadata_only(PODS), pod.name, patch, namespace=pod.namespace)
    _log.info("the GPU is held", extra=with_fields(device=device))
    await asyncio.Event().wait()


async def _ask_driver() -> str:
    """Return the device list of the driver's own tool, present on every node with a GPU."""
    program = shutil.which(_QUERY[0])
    if program is None:
        raise NoDeviceError(f"NVIDIA_VISIBLE_DEVICES names no GPU, and there is no {_QUERY[0]}")
    process = await asyncio.create_subprocess_exec(
        program, *_QUERY[1:], stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    return ",".join(line.strip() for line in output.decode().splitlines() if line.strip())
