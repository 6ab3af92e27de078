"""The program of a reservation pod: reports its GPU and holds it.

Run in the pod by `bindery reservation hold`. KAI-Scheduler's protocol (v0.17,
pkg/resourcereservation): the answer is an annotation of the pod itself, which the binder waits for.
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
"""Values of the variable that name no device: other ways of handing it over are in use then."""
_DEVICE: Final = re.compile(r"GPU-[0-9a-fA-F-]{8,64}|[0-9]{1,4}")
_QUERY: Final = ("nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader")

# Not structlog, whose import takes longer than all of this program's work.
_log: Final = logging.getLogger(__name__)


class NoDeviceError(Exception):
    """The container sees no GPU, or more than one."""


@dataclass(frozen=True)
class Identity:
    """Which pod this is."""

    namespace: str
    name: str


async def visible_device(environment: Mapping[str, str]) -> str:
    """Return the GPU that this container got, as its users shall name it.

    Raises:
        NoDeviceError: there is none, or it is not clear which.
    """
    said = environment.get("NVIDIA_VISIBLE_DEVICES", "").strip()
    if said in _NO_DEVICE:
        said = await _ask_driver()
    # CDI names it vendor.com/gpu=GPU-...
    device = said.rpartition("=")[2]
    if _DEVICE.fullmatch(device) is None:
        raise NoDeviceError(f"one GPU should be visible, not {said!r}")
    return device


async def hold(client: Client, who: Identity, device: str) -> None:
    """Write `device` on the pod `who`, then hold it until cancelled."""
    patch = {"metadata": {"annotations": {INDEX_ANNOTATION: device}}}
    await client.patch(metadata_only(PODS), who.name, patch, namespace=who.namespace)
    _log.info("the GPU is held", extra=with_fields(device=device))
    await asyncio.Event().wait()


async def _ask_driver() -> str:
    """Return what the driver's own tool lists; it is there wherever a GPU is."""
    program = shutil.which(_QUERY[0])
    if program is None:
        raise NoDeviceError(f"NVIDIA_VISIBLE_DEVICES names no GPU, and there is no {_QUERY[0]}")
    process = await asyncio.create_subprocess_exec(
        program, *_QUERY[1:], stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    return ",".join(line.strip() for line in output.decode().splitlines() if line.strip())
