"""Writes the status of one pod, always the newest, while its worker goes on."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Final

import structlog

from bindery.kube.client import Client
from bindery.kube.errors import ConflictError, InvalidError, KubeError, NotFoundError
from bindery.kube.http.requests import PatchKind
from bindery.nodeagent.containers.podspec import RUN_PODS, RunPod
from bindery.nodeagent.pod_status import Patch

_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 10.0

log = structlog.get_logger(__name__)


class StatusWriter:
    """Writes what was offered last; `written` gets the pod as the API server has it then."""

    def __init__(self, client: Client, random: Random, written: Callable[[RunPod], None]) -> None:
        self._client, self._random, self._take = client, random, written
        self._wanted: tuple[RunPod, Patch] | None = None
        self._last: Patch | None = None
        self._wake, self._idle = asyncio.Event(), asyncio.Event()
        self._idle.set()

    def offer(self, pod: RunPod, patch: Patch) -> None:
        """Write `patch`, unless it is what was offered before."""
        if patch == self._last:
            return
        self._last = patch
        self._wanted = (pod, patch)
        self._idle.clear()
        self._wake.set()

    async def flush(self) -> None:
        """Wait until everything that was offered is written, or the pod is gone."""
        await self._idle.wait()

    async def run(self) -> None:
        """Write until cancelled."""
        pause_s = _FIRST_PAUSE_S
        while True:
            await self._wake.wait()
            self._wake.clear()
            wanted = self._wanted
            if wanted is None:
                continue
            if await self._write(*wanted):
                pause_s = _FIRST_PAUSE_S
                if self._wanted is wanted:
                    self._wanted = None
                    self._idle.set()
            else:
                await asyncio.sleep(pause_s * self._random.uniform(0.5, 1.0))
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                self._wake.set()

    async def _write(self, pod: RunPod, patch: Patch) -> bool:
        """Write a patch; return whether it need not be tried again."""
        meta = pod.metadata
        try:
            found = await self._client.patch(
                RUN_PODS,
                meta.name,
                patch,
                namespace=meta.namespace,
                subresource="status",
                kind=PatchKind.STRATEGIC,
            )
        except (NotFoundError, ConflictError):
            return True  # the pod is gone, or another one has its name
        except InvalidError as error:
            log.warning("the status of a pod was refused", pod=meta.name, error=str(error))
            return True
        except KubeError as error:
            log.warning("the status of a pod was not written", pod=meta.name, error=str(error))
            return False
        self._take(found)
        return True
