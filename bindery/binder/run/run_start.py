"""The start of one Run: waits for earlier Runs and claims its pods.

Made by `statements.manager` for each Run, which calls it in the order of `dependencies.StartGate`.
"""

import asyncio
from collections.abc import Mapping, Sequence

from bindery.api.bindrequest import BindFailureReason
from bindery.binder.outcome.outcome import PodFailure, Wait, WaitReason
from bindery.binder.run.pod_claims import PodClaims
from bindery.binder.run.predecessors import Predecessor
from bindery.binder.run.run import Run
from bindery.binder.run.statements import settled_refusals
from bindery.kube.objects.bindrequests import CommittedStatement


class RunStart:
    """Implements `dependencies.StartGate` over what the Runs of one manager share."""

    def __init__(
        self, run: Run, before: Sequence[Run], predecessor: Predecessor, claims: PodClaims
    ) -> None:
        """Make the start of `run`.

        Args:
            run: the Run.
            before: the Runs of earlier states of the same requests.
            predecessor: the Statement on which that of the Run builds.
            claims: the pods that Runs have.
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
        """Wait for the ends of the Runs of the same requests, and of the Statement before."""
        self._waits_for = "an earlier version of this request is still being rolled back"
        for run in self._before:
            await run.ended.wait()
        self._waits_for = self._predecessor.waits_for
        await self._predecessor.wait()
        self._waits_for = ""

    async def claim(self, parts: Sequence[CommittedStatement]) -> Mapping[str, PodFailure]:
        """Take the pods; refuse those that another Run has and will not give back."""
        # kopf keeps the order of one request's events, not of two: that the other request is gone
        # may not have been told yet.
        for holder in self._claims.others(self._run):
            await holder.look_again()
        while leaving := [run for run in self._claims.others(self._run) if run.is_leaving]:
            self._waits_for = f"request {leaving[0].names[0]} is releasing pods of this one"
            await leaving[0].ended.wait()
            # `ended` comes a moment before the pods are given back.
            await asyncio.sleep(0)
        refusals = settled_refusals(parts)
        message = "another request in progress has the pod"
        for uid in self._claims.claim(self._run):
            refusals[uid] = PodFailure(
                BindFailureReason.HELD_BY_OTHER_REQUEST, message, permanent=True
            )
        return refusals
