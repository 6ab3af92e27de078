"""Keeps the NodeResourceTopology of one node up to date.

Started by `agent`. `look` compares marks of files and reads only after a change, so a node where
nothing happens costs a few calls of stat a second.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import structlog

from bindery.kube.client import Client
from bindery.kube.errors import KubeError
from bindery.kube.events.recorder import EventRecorder, reference_to
from bindery.kube.http.retry import backoff_s
from bindery.kube.objects.resources import NODES
from bindery.kube.objects.watched import Node
from bindery.nodeagent import reportobject
from bindery.nodeagent.beside import metrics
from bindery.nodeagent.beside.podresources import PodResources
from bindery.nodeagent.beside.reporting import Origin, Reading, ReportMaker
from bindery.nodeagent.beside.sources import Mark, SourceError, Sources
from bindery.nodeagent.pod_objects import AgentPod
from bindery.nodeagent.topologyreport import Body

LOOK_S: Final = 1.0
"""Seconds between two looks, and so the shortest time between two reports."""
UNREADABLE: Final = "KubeletNotReadable"
"""The reason of the event at a node about what cannot be read or contradicts itself."""
_AGAIN_S: Final = 30.0
"""Longest time between two readings: the kubelet may know what no file shows."""
_WRITE_S: Final = 300.0
"""Longest time between two writes: others may have changed or deleted it."""
_OLD_S: Final = 60.0
"""Age of a report from which the agent is not ready."""
_TRIES: Final = 3
"""Times that files and socket are read until both are of one moment."""
_NOT_SERVED: Final = "the API server does not serve NodeResourceTopology"

log = structlog.get_logger(__name__)


class Exporter:
    """Reports about the node called `name`.

    `pods` returns the pods of the node by the API server; call `touch` when they change.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        sources: Sources,
        pods: Callable[[], Sequence[AgentPod]],
        events: EventRecorder,
    ) -> None:
        self._client, self._name, self._sources, self._pods = client, name, sources, pods
        self._events = events
        self._clock, self._random = client.environment.now_s, client.environment.random
        self._reporter = ReportMaker()
        self._is_touched = True
        self._marks: Mapping[str, Mark] = {}
        self._started: Mark | None = None
        self._node: Node | None = None
        self._hardware: Mapping[str, str] | None = None
        self._configuration: str | None = None
        self._resources: PodResources | None = None
        self._problems: Mapping[Origin, str] = {}
        self._written: Body | None = None
        self._read_s = self._written_s = self._node_s = self._paused_until_s = 0.0
        self._current_s = self._clock()
        self._failures = 0
        metrics.REPORT_AGE.set_function(lambda: self.age_s)

    @property
    def age_s(self) -> float:
        """Seconds since the report was last found to be that of the node."""
        return self._clock() - self._current_s

    @property
    def is_ready(self) -> bool:
        """Whether there is a report, and a recent one."""
        return self._written is not None and self.age_s < _OLD_S

    def touch(self) -> None:
        """Read again at the next look."""
        self._is_touched = True

    async def run(self) -> None:
        """Look once a second; does not return."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Read and write a report if there may be another one than before."""
        now_s, marks = self._clock(), self._sources.marks()
        if now_s < self._paused_until_s:
            return
        is_same = not self._is_touched and marks == self._marks
        if is_same and self._sources.started() == self._started and now_s - self._read_s < _AGAIN_S:
            self._confirm(self._problems)
            return
        self._is_touched, self._read_s = False, now_s
        problems: dict[Origin, str] = {}
        body = await self._read(problems)
        if body is not None and await self._write(body, problems):
            self._confirm(problems)
        else:
            self._is_touched = True
        self._note(problems)

    def _confirm(self, problems: Mapping[Origin, str]) -> None:
        """Note that the report is that of the node, unless its devices are not known."""
        if Origin.POD_RESOURCES not in problems:
            self._current_s = self._clock()

    # -- reading -----------------------------------------------------------------------------------

    async def _read(self, problems: dict[Origin, str]) -> Body | None:
        """Return the report; None if the last one stays."""
        try:
            await self._read_start()
            files = await self._read_state(problems)
        except SourceError as error:
            problems[Origin.CHECKPOINTS] = f"{error}; the last report stays"
            return None
        except KubeError as error:
            self._fail(f"the Node cannot be read: {error}", problems)
            return None
        if self._resources is None or self._node is None or self._hardware is None:
            return None
        outcome = self._reporter.report(
            Reading(
                self._node,
                self._hardware,
                self._configuration,
                files,
                self._resources,
                self._pods(),
            )
        )
        problems.update(outcome.problems)
        if Origin.MACHINE in outcome.problems:
            self._node = None  # its capacity may have changed
        return outcome.body

    async def _read_start(self) -> None:
        """Read what a kubelet reads at its start, if it has started since."""
        started, now_s = self._sources.started(), self._clock()
        has_started = started is not None and started != self._started
        if has_started or self._hardware is None:
            self._hardware = self._sources.hardware()
            self._configuration = self._sources.configuration()
            self._node = None
        if self._node is None or now_s - self._node_s >= _WRITE_S:
            self._node, self._node_s = await self._client.get(NODES, self._name), now_s
        self._started = started

    async def _read_state(self, problems: dict[Origin, str]) -> Mapping[str, bytes]:
        """Read files and socket of one moment, as far as the kubelet stands still."""
        for _ in range(_TRIES):
            self._marks = self._sources.marks()
            files = self._sources.files()
            try:
                self._resources = await self._sources.resources()
            except SourceError as error:
                known = "the devices are believed as they were"
                consequence = "there is no report" if self._resources is None else known
                problems[Origin.POD_RESOURCES] = f"{error}; {consequence}"
            if self._sources.marks() == self._marks:
                break
        return files

    # -- writing -----------------------------------------------------------------------------------

    async def _write(self, body: Body, problems: dict[Origin, str]) -> bool:
        """Write the report if it has changed; return whether the API server has it."""
        now_s = self._clock()
        if body == self._written and now_s - self._written_s < _WRITE_S:
            return True
        try:
            is_served = await reportobject.store(self._client, self._name, body)
        except KubeError as error:
            self._fail(f"the report cannot be written: {error}", problems)
            return False
        if not is_served:
            problems[Origin.API_SERVER] = _NOT_SERVED
            self._paused_until_s = now_s + _AGAIN_S
            return False
        self._failures = 0
        self._written, self._written_s = body, now_s
        metrics.REPORTS.inc()
        return True

    def _fail(self, text: str, problems: dict[Origin, str]) -> None:
        problems[Origin.API_SERVER] = text
        pause_s = backoff_s(self._failures, LOOK_S, _AGAIN_S, self._random.random())
        self._paused_until_s = self._clock() + pause_s
        self._failures += 1

    def _note(self, problems: Mapping[Origin, str]) -> None:
        """Log each problem, and record an event at the node, when it comes and when it goes."""
        for source in Origin:
            text = problems.get(source)
            metrics.PROBLEMS.labels(source).set(text is not None)
            if text is None:
                if source in self._problems:
                    log.info("usable again", source=source)
                continue
            metrics.ERRORS.labels(source).inc()
            if text == self._problems.get(source):
                continue
            log.warning("not usable", source=source, problem=text)
            if self._node is not None and source is not Origin.API_SERVER:
                self._events.warning(reference_to(NODES, self._node), UNREADABLE, text)
        self._problems = dict(problems)
