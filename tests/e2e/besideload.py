"""Pods in a random order on a node with an exporter, and whether predictions of zones were right.

The exporter is killed, halted and started again while pods come and go. Some pods are foreign ones:
they are bound without a scheduler.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import Any, Final, Protocol

from bindery.api import numadetail, numaplacement
from bindery.api.names import NUMA_DETAIL_ANNOTATION, NUMA_ZONES_ANNOTATION
from bindery.api.numadetail import NumaDetail
from bindery.kube.objects.nodetopologies import NODE_RESOURCE_TOPOLOGIES
from bindery.kube.objects.resources import PODS
from bindery.kube.objects.watched import Pod
from bindery.nodecore.cpusets import CpuSet, parse_cpus
from bindery.nodecore.masks import mask_of, nodes_of
from devcluster.realnode.node import RealNode
from tests.e2e import nodefiles
from tests.e2e.nodefiles import Actual, decided, until
from tests.e2e.support import Corner, Gang

ROUND: Final = 10
"""Pods from one interruption of the exporter to the next."""
_AWAY: Final = range(5, 7)
"""The pods of a round that come while the exporter is away."""
_FOREIGN: Final = 0.3
"""Share of foreign pods."""
_ZONE: Final = "node-"
_AVOIDED: Final = "refused an equal pod a short while ago"
"""No prediction: the text of the plugin `cooldown`."""


class Exporter(StrEnum):
    """What the exporter does when a pod comes."""

    ON = "on"
    KILLED = "killed"
    LATE = "late"
    BACK = "back"
    """It is back, and its report does not have yet what came and went."""


class Interruptible(Protocol):
    """An exporter that can be taken away for a time."""

    def kill(self) -> None:
        """Kill it with SIGKILL, and keep it stopped."""

    def restart(self) -> None:
        """Start it again."""

    def halt(self) -> None:
        """Let it stand still."""

    def go_on(self) -> None:
        """Let it go on."""


@dataclass
class BesideLoad:
    """One load on one node; `pod` makes a bound pod with a name, which starts or never does."""

    corner: Corner
    node: RealNode
    agent: Interruptible
    random: Random
    pod: Callable[[str, bool], dict[str, Any]]
    exporter: Exporter = Exporter.ON
    counts: Counter[tuple[Exporter, str]] = field(default_factory=Counter)
    """State of the exporter, and what happened -> how often."""
    wrong: dict[Exporter, list[str]] = field(default_factory=lambda: {one: [] for one in Exporter})
    """One line for each wrong prediction."""
    seen_s: list[float] = field(default_factory=list)
    """Seconds from the admission of each foreign pod until the report has what it holds."""
    _present: dict[str, Pod] = field(default_factory=dict)
    """The pods that the node has decided about and that have not ended, by name."""
    _admitted: set[str] = field(default_factory=set)
    """UIDs of those of them that were admitted."""
    _gone: set[str] = field(default_factory=set)
    """UIDs of pods that have ended."""
    _cpus: Mapping[int, CpuSet] = field(default_factory=dict)
    _was_refused: bool = False
    _began_s: float = field(default_factory=time.monotonic)

    async def play(self, pods: int, starting: int) -> None:
        """Let `pods` come one after another, `starting` of which start containers."""
        self._cpus = _cpus_of_zones(nodefiles.hardware_files(self.node))
        for number in range(pods):
            await self._turn(number)
            starts = number % max(1, pods // starting) == 0
            body = self.pod(f"pod-{number}", starts)
            is_foreign = not starts and self.random.random() < _FOREIGN
            await (self._foreign(body) if is_foreign else self._planned(body))
            if self._was_refused or self.random.random() < 1 / 5:
                await self._end(self.random.choice((0.4, 0.7, 1.0)))
        self._come_back()
        await until(self._is_current, "the report has all that came and went")
        await self._end(1.0)

    def summary(self) -> str:
        """Return what happened, for people."""
        happened: dict[Exporter, dict[str, int]] = {state: {} for state in Exporter}
        for (state, what), count in sorted(self.counts.items()):
            happened[state][what] = count
        lines = [
            f"exporter {state}: {found}, {len(self.wrong[state])} wrong {self.wrong[state]}"
            for state, found in happened.items()
        ]
        worst_s = max(self.seen_s, default=0.0)
        lines.append(f"{len(self.seen_s)} foreign pods seen, at the latest after {worst_s:.1f} s")
        return "\n".join(("", *lines))

    # -- the exporter ------------------------------------------------------------------------------

    async def _turn(self, number: int) -> None:
        """Let the exporter do what is due before the pod with this number."""
        place = number % ROUND
        if place == _AWAY.start and self.exporter is Exporter.ON:
            is_killed = number // ROUND % 2 == 0
            self.exporter = Exporter.KILLED if is_killed else Exporter.LATE
            (self.agent.kill if is_killed else self.agent.halt)()
        elif place == _AWAY.stop:
            self._come_back()
        elif self.exporter is Exporter.BACK:
            if place == 0:
                await until(self._is_current, "the report has all that came and went")
            if await self._is_current():
                self.exporter = Exporter.ON

    def _come_back(self) -> None:
        if self.exporter in (Exporter.KILLED, Exporter.LATE):
            is_killed = self.exporter is Exporter.KILLED
            (self.agent.restart if is_killed else self.agent.go_on)()
            self.exporter = Exporter.BACK

    async def _is_current(self) -> bool:
        listed = set((await self._detail()).pods)
        return self._admitted <= listed and not self._gone & listed

    async def _detail(self) -> NumaDetail:
        found = await self.corner.client.get(NODE_RESOURCE_TOPOLOGIES, self.node.name)
        return numadetail.decode(found.metadata.annotations[NUMA_DETAIL_ANNOTATION])

    # -- pods --------------------------------------------------------------------------------------

    async def _planned(self, body: dict[str, Any]) -> None:
        """Let the scheduler place a pod, and compare its prediction with what the node does."""
        name = body["metadata"]["name"]
        spec = {key: value for key, value in body["spec"].items() if key != "nodeName"}
        gang = Gang(name, 1, pod=spec)
        await self.corner.submit(gang)
        pod = await until(lambda: self._placed(gang), f"{name} is placed or waits")
        assert pod is not None
        if isinstance(pod, str):
            await self._check_waiting(body, pod)
            await self.corner.delete_gang(gang)
            return
        actual = await self._decided(pod)
        annotation = pod.metadata.annotations.get(NUMA_ZONES_ANNOTATION)
        record = numaplacement.from_record(annotation, pod.metadata.uid)
        predicted = mask_of(record.zones) if record is not None else 0
        zones = actual.zones(pod.metadata.uid, self._cpus) if actual.admission.admit else 0
        agrees = actual.agrees(predicted, pod.metadata.uid, self._cpus)
        if not actual.admission.admit or not agrees:
            self._mistaken(body, f"zones {nodes_of(predicted)} predicted", actual, zones)
        self._note("planned", actual, pod)

    async def _foreign(self, body: dict[str, Any]) -> None:
        """Bind a pod without a scheduler; with an exporter, its part is soon in the report."""
        pod = await self.corner.client.create(PODS, body, self.corner.namespace)
        actual = await self._decided(pod)
        self._note("foreign", actual, pod)
        if not actual.admission.admit or self.exporter is not Exporter.ON:
            return
        zones = actual.zones(pod.metadata.uid, self._cpus)

        async def is_seen() -> bool:
            detail = await self._detail()
            held = (detail.held or {}).get(pod.metadata.uid)
            reported = (int(zone.removeprefix(_ZONE)) for zone in (held.held if held else ()))
            agrees = actual.agrees(mask_of(set(reported)), pod.metadata.uid, self._cpus)
            return pod.metadata.uid in detail.pods and agrees

        began_s = time.monotonic()
        await until(is_seen, f"the report has {pod.metadata.name} in zones {nodes_of(zones)}")
        self.seen_s.append(time.monotonic() - began_s)

    async def _check_waiting(self, body: dict[str, Any], said: str) -> None:
        """Bind a copy of a pod that the scheduler lets wait: the node has to refuse it."""
        if _AVOIDED in said:
            self.counts[self.exporter, "waiting after a refusal"] += 1
            return
        copy = {**body, "metadata": {"name": f"{body['metadata']['name']}-copy"}}
        pod = await self.corner.client.create(PODS, copy, self.corner.namespace)
        actual = await self._decided(pod)
        if actual.admission.admit:
            zones = actual.zones(pod.metadata.uid, self._cpus)
            self._mistaken(body, f"it waits ({said})", actual, zones)
        self._note("waiting", actual, pod)

    async def _placed(self, gang: Gang) -> Pod | str | None:
        """Return the pod once it is bound, or why it waits."""
        (pod,) = await self.corner.pods(gang)
        if pod.spec.node_name:
            return pod
        condition = await self.corner.condition(gang)
        waits = condition is not None and condition.reason == "Unschedulable"
        return condition.message if condition is not None and waits else None

    async def _decided(self, pod: Pod) -> Actual:
        meta = pod.metadata
        return await decided(self.corner.client, self.node, meta.namespace, meta.name)

    def _mistaken(self, body: dict[str, Any], said: str, actual: Actual, zones: int) -> None:
        asked = [one["resources"] for one in body["spec"]["containers"]]
        did = f"{actual.admission.reason or 'admitted'} in zones {nodes_of(zones)}"
        self.wrong[self.exporter].append(f"{body['metadata']['name']} {asked}: {said}; {did}")

    def _note(self, kind: str, actual: Actual, pod: Pod) -> None:
        is_admitted = actual.admission.admit
        self.counts[self.exporter, f"{kind} {'admitted' if is_admitted else 'refused'}"] += 1
        self._was_refused = not is_admitted
        self._present[pod.metadata.name] = pod
        self._admitted |= {pod.metadata.uid} if is_admitted else set()
        passed_s = time.monotonic() - self._began_s
        did = actual.admission.reason or "admitted"
        print(
            f"{passed_s:5.0f} s {self.exporter:6} {kind:7} {pod.metadata.name}: {did}", flush=True
        )

    async def _end(self, share: float) -> None:
        """Delete a share of the pods."""
        ending = [name for name in self._present if self.random.random() < share]
        for name in ending:
            await self.corner.client.delete(PODS, name, self.corner.namespace)

        async def gone() -> bool:
            left = await self.corner.client.list(PODS, namespace=self.corner.namespace)
            return not {one.metadata.name for one in left} & set(ending)

        await until(gone, f"{ending} are gone")
        uids = {self._present.pop(name).metadata.uid for name in ending}
        self._gone |= uids
        self._admitted -= uids
        self._was_refused = False


def without_start(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec of a pod that waits for a volume which never comes.

    The kubelet has admitted it and given it what it holds, and no container costs time.
    """
    first, *others = spec["containers"]
    # The kubelet waits only for volumes that a container mounts.
    first = {**first, "volumeMounts": [{"name": "never", "mountPath": "/never"}]}
    volumes = [{"name": "never", "secret": {"secretName": "never"}}]
    return {**spec, "containers": [first, *others], "volumes": volumes}


def _cpus_of_zones(files: Mapping[str, str]) -> dict[int, CpuSet]:
    """Return zone -> CPUs, from the files of the hardware."""
    found = {}
    for path, text in files.items():
        directory, _, name = path.rpartition("/")
        if name == "cpulist":
            found[int(directory.rpartition("/node")[2])] = parse_cpus(text.strip())
    return found
