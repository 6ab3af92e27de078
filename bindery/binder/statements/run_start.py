"""The start of one Run: waits for earlier Runs and claims its pods.

Created by `manager` for each Run. The Run calls the methods in the order of
`run.dependencies.StartGate`; the manager releases the pods after the Run has ended.
"""

import asyncio
from collections.abc import Mapping, Sequence

from bindery.api.bindrequest import BindFailureReason
from bindery.binder.outcome.outcome import PodFailure, Wait, WaitReason
from bindery.binder.run.run import Run
from bindery.binder.statements.predecessors import Predecessor
from bindery.binder.statements.problems import settled_refusals
from bindery.kube.objects.bindrequests import CommittedStatement


class PodClaims:
    """The pods of one manager's Runs: each pod has at most one Run at a time."""

    def __init__(self) -> None:
        self._holders: dict[str, Run] = {}
        """Pod UID -> the Run that holds it."""

    def others(self, run: Run) -> list[Run]:
        """Return the other Runs that hold pods of `run`."""
        found = (self._holders.get(uid) for uid in run.pod_uids)
        return list({id(each): each for each in found if each not in (None, run)}.values())

    def claim(self, run: Run) -> list[str]:
        """Claim the pods of `run`; return the UIDs of pods that another Run holds."""
        return [uid for uid in run.pod_uids if self._holders.setdefault(uid, run) is not run]

    def release(self, run: Run) -> None:
        """Release the pods that `run` holds."""
        for uid in run.pod_uids:
            if self._holders.get(uid) is run:
                del self._holders[uid]


class RunStart:
    """Implements `run.dependencies.StartGate` over the shared state of one manager's Runs."""

    def __init__(
        self, run: Run, before: Sequence[Run], predecessor: Predecessor, claims: PodClaims
    ) -> None:
        """Create the start of `run`.

        Args:
            run: the Run.
            before: the Runs of earlier states of the same requests.
            predecessor: the prerequisite of the Run's Statement.
            claims: the pods held by Runs.
        """
        self._run, self._before, self._predecessor = run, before, predecessor
        self._claims = claims
        self._waits_for = ""

    @property
    def wait(self) -> Wait:
        """What the Run waits for before its first attempt."""
        if self._waits_for:
            return Wait(WaitReason.WAITS_FOR_REQUEST, self._waits_for)
        return Wait(WaitReason.WAITS_FOR_TURN, "it waits for its turn")

    async def wait_turn(self) -> None:
        """Wait for the ends of the Runs of the same requests and of the prerequisite."""
        self._waits_for = "an earlier version of this request is still being rolled back"
        for run in self._before:
            await run.ended.wait()
        self._waits_for = self._predecessor.waits_for
        await self._predecessor.wait()
        self._waits_for = ""

    async def claim(self, parts: Sequence[CommittedStatement]) -> Mapping[str, PodFailure]:
        """Claim the pods; refuse pods that another Run holds and will not release."""
        # kopf keeps the order of events of one request, not of two: the deletion of the other
        # request may not have been delivered yet.
        for holder in self._claims.others(self._run):
            await holder.look_again()
        while leaving := [run for run in self._claims.others(self._run) if run.is_leaving]:
            self._waits_for = f"request {leaving[0].names[0]} is releasing pods of this one"
            await leaving[0].ended.wait()
            # `ended` is set a moment before the pods are released.
            await asyncio.sleep(0)
        refusals = settled_refusals(parts)
        message = "another request in progress has the pod"
        for uid in self._claims.claim(self._run):
            refusals[uid] = PodFailure(
                BindFailureReason.HELD_BY_OTHER_REQUEST, message, permanent=True
            )
        return refusals
