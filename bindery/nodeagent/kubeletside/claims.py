"""Prepares and unprepares the claims of pods: reads them, makes the calls, records the answers.

Plans of one pod never overlap. Plans of different pods do: a driver that does not answer holds only
the pods that need it.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol

import structlog

from bindery.nodeagent.kubeletside.drivers import DraDrivers
from bindery.nodecore.claims.calls import ClaimPlan
from bindery.nodecore.claims.facts import ClaimError, ClaimingPod, ResourceClaim
from bindery.nodecore.claims.manager import ClaimManager

_PREPARE: Final = "prepare dynamic resources"
_UNPREPARE: Final = "unprepare dynamic resources"

log = structlog.get_logger(__name__)


@dataclass
class _Turn:
    """The plans of one pod, one after the other; it goes with its last user."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class ClaimApi(Protocol):
    """The API server, as far as claims go."""

    async def claim(self, namespace: str, name: str) -> ResourceClaim:
        """Return a ResourceClaim; raises ClaimError if it cannot be had."""

    async def wipe_slices(self, driver: str | None) -> None:
        """Delete the ResourceSlices of the node, of one driver or of all."""


class PodClaims:
    """The claims of the pods of a node."""

    def __init__(self, manager: ClaimManager, drivers: DraDrivers, api: ClaimApi) -> None:
        self._manager, self._drivers, self._api = manager, drivers, api
        self._turns: dict[str, _Turn] = {}

    async def prepare(self, pod: ClaimingPod) -> None:
        """Prepare the claims of a pod before its containers start; call again after a failure.

        Raises:
            ClaimError: a claim may not be used, or a driver fails or does not answer in time.
        """
        async with self._turn(pod.uid, _PREPARE):
            read = await self._read(pod)

            def get(namespace: str, name: str) -> ResourceClaim:
                found = read[namespace, name]
                if isinstance(found, ClaimError):
                    raise found
                return found

            await self._carry_out(self._manager.plan_prepare(pod, get))

    async def unprepare(self, pod: ClaimingPod) -> None:
        """Unprepare the claims of a pod whose containers have ended; call again after a failure.

        Raises:
            ClaimError: a driver fails or does not answer in time.
        """
        async with self._turn(pod.uid, _UNPREPARE):
            await self._carry_out(self._manager.plan_unprepare(pod))

    async def run(self, period_s: float) -> None:
        """Unprepare the claims of pods that are no longer active; does not return."""
        async with asyncio.TaskGroup() as group:
            while True:
                for plan in self._manager.stale(self._turns):
                    group.create_task(self._unprepare_stale(plan))
                await asyncio.sleep(period_s)

    async def _unprepare_stale(self, plan: ClaimPlan) -> None:
        try:
            async with self._turn(plan.pod_uid, _UNPREPARE):
                await self._carry_out(plan)
        except ClaimError as error:
            log.warning("claims of a pod that is gone stay", pod=plan.pod_uid, error=str(error))

    async def _read(self, pod: ClaimingPod) -> dict[tuple[str, str], ResourceClaim | ClaimError]:
        """Return the claims of the pod that have a name already, or why they cannot be had."""
        names = [pod.extended_claim]
        for claim in pod.claims:
            try:
                names.append(pod.claim_name(claim))
            except ClaimError:
                continue  # the plan refuses it in its turn
        found: dict[tuple[str, str], ResourceClaim | ClaimError] = {}
        for name in filter(None, names):
            try:
                found[pod.namespace, name] = await self._api.claim(pod.namespace, name)
            except ClaimError as error:
                found[pod.namespace, name] = error
        return found

    async def _carry_out(self, plan: ClaimPlan) -> None:
        try:
            for call in plan.calls:
                self._manager.record(call, await self._drivers.call(call))
        except BaseException:
            self._manager.give_up(plan)
            raise
        self._manager.finish(plan)

    @asynccontextmanager
    async def _turn(self, uid: str, doing: str) -> AsyncIterator[None]:
        """Wait for the other plans of a pod; put `doing` before the text of an error."""
        turn = self._turns.setdefault(uid, _Turn())
        turn.users += 1
        try:
            async with turn.lock:
                yield
        except ClaimError as error:
            raise ClaimError(f"{doing}: {error}") from error
        except OSError as error:
            raise ClaimError(f"{doing}: checkpoint ResourceClaim state: {error}") from error
        finally:
            turn.users -= 1
            if not turn.users:
                del self._turns[uid]
