"""Runs the probes of a pod's containers, each in a task, and keeps their verdicts.

`nodecore.podsync.probing` counts the results. A worker of a pod has one prober.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from bindery.nodeagent.containers.checks import Checks, Target
from bindery.nodeagent.containers.errors import RuntimeCallError
from bindery.nodeagent.containers.podspec import ProbeSpec, RunContainer
from bindery.nodeagent.containers.seen import own_id
from bindery.nodecore.podsync.facts import ProbeVerdict, ProbeVerdicts
from bindery.nodecore.podsync.probing import ProbeCount, ProbeKind
from bindery.nodecore.podsync.statuses import ContainerReport, Running

Report = Callable[[str, str, str], None]
"""Writes an event: its type, its reason and its text."""
_SHORTEST_S: Final = 0.05


@dataclass
class _Probe:
    kind: ProbeKind
    spec: ProbeSpec
    container: RunContainer
    count: ProbeCount
    id: str = ""
    """The id of the container whose results are counted."""
    kick: asyncio.Event = field(default_factory=asyncio.Event)


class Prober:
    """The probes of one pod.

    Args:
        current: returns the container's report, and its pod's address.
        changed: called when a verdict changes.
        report: writes an event of the pod.
        after_restart: whether containers may have run before this agent: they keep being ready.
    """

    def __init__(
        self,
        checks: Checks,
        *,
        current: Callable[[str], tuple[ContainerReport | None, str]],
        changed: Callable[[], None],
        report: Report,
        clock: Callable[[], float],
    ) -> None:
        self._checks, self._current, self._changed = checks, current, changed
        self._report, self._clock = report, clock
        self._verdicts: dict[ProbeKind, dict[str, ProbeVerdict]] = {kind: {} for kind in ProbeKind}
        self._tasks: dict[tuple[str, ProbeKind], asyncio.Task[None]] = {}
        self._probes: dict[tuple[str, ProbeKind], _Probe] = {}

    @property
    def verdicts(self) -> ProbeVerdicts:
        """The verdicts of all probes, by the id of the container."""
        return ProbeVerdicts(*(dict(self._verdicts[kind]) for kind in ProbeKind))

    def start(self, containers: list[RunContainer]) -> None:
        """Run the probes of `containers`; probes that run already go on."""
        for container in containers:
            for kind, spec in _specs(container).items():
                key = (container.name, kind)
                if key in self._tasks:
                    continue
                probe = self._probes[key] = _Probe(kind, spec, container, _count(kind, spec))
                self._tasks[key] = asyncio.create_task(self._run(probe))

    def seed(self, reports: Mapping[str, ContainerReport]) -> None:
        """Take over what an earlier run of the agent has found of containers that still run."""
        for report in reports.values():
            if not isinstance(report.state, Running):
                continue
            if report.started:
                self._verdicts[ProbeKind.STARTUP].setdefault(
                    report.container_id, ProbeVerdict.SUCCESS
                )
            if report.ready:
                self._verdicts[ProbeKind.READINESS].setdefault(
                    report.container_id, ProbeVerdict.SUCCESS
                )

    def kick(self) -> None:
        """Run the readiness probes now of containers that are not ready."""
        for (_, kind), probe in self._probes.items():
            if kind is ProbeKind.READINESS:
                verdict = self._verdicts[kind].get(probe.id)
                if verdict is not ProbeVerdict.SUCCESS:
                    probe.kick.set()

    def stop_restarts(self) -> None:
        """End the startup and liveness probes: the pod ends, and no container is replaced."""
        for (_, kind), task in self._tasks.items():
            if kind is not ProbeKind.READINESS:
                task.cancel()

    async def stop(self) -> None:
        """End all probes."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._tasks.clear()
        self._probes.clear()

    async def _run(self, probe: _Probe) -> None:
        period_s = max(float(probe.spec.period_seconds), _SHORTEST_S)
        while True:
            await self._probe(probe)
            try:
                async with asyncio.timeout(period_s):
                    await probe.kick.wait()
                # Not at once again, when the container has only just started to answer.
                await asyncio.sleep(_SHORTEST_S)
            except TimeoutError:
                pass
            probe.kick.clear()

    async def _probe(self, probe: _Probe) -> None:
        report, address = self._current(probe.container.name)
        if report is None or not report.container_id:
            return
        if probe.id != report.container_id:
            self._begin(probe, report.container_id)
        verdicts = self._verdicts[probe.kind]
        if not isinstance(report.state, Running):
            verdicts[probe.id] = ProbeVerdict.FAILURE
            return
        running_s = self._clock() - report.state.started_s
        delay_s = probe.spec.initial_delay_seconds
        if not probe.count.is_due(
            started=bool(report.started), running_s=running_s, initial_delay_s=delay_s
        ):
            return
        target = Target(probe.container, own_id(probe.id), address)
        try:
            outcome = await self._checks.probe(probe.spec, target)
        except RuntimeCallError as error:
            self._report("Warning", "Unhealthy", f"{probe.kind} probe errored: {error}")
            return
        if not outcome.success:
            text = f"{probe.kind} probe failed: {outcome.text}"
            self._report("Warning", "Unhealthy", text)
        verdict = probe.count.enter(success=outcome.success)
        if verdict is not None and verdicts.get(probe.id) is not verdict:
            verdicts[probe.id] = verdict
            self._changed()

    def _begin(self, probe: _Probe, container_id: str) -> None:
        """Count from the beginning for a new container."""
        verdicts = self._verdicts[probe.kind]
        verdicts.pop(probe.id, None)
        probe.id, probe.count = container_id, _count(probe.kind, probe.spec)
        verdicts.setdefault(container_id, probe.kind.first_verdict)


def _specs(container: RunContainer) -> dict[ProbeKind, ProbeSpec]:
    found = {
        ProbeKind.STARTUP: container.startup_probe,
        ProbeKind.LIVENESS: container.liveness_probe,
        ProbeKind.READINESS: container.readiness_probe,
    }
    return {kind: spec for kind, spec in found.items() if spec is not None}


def _count(kind: ProbeKind, spec: ProbeSpec) -> ProbeCount:
    return ProbeCount(kind, spec.failure_threshold, spec.success_threshold)
