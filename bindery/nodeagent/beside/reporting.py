"""The report of a node from what was read, and what contradicts itself. Pure.

Called by `exporter`. The text of each problem has its consequence: what is believed instead, or
that the last report stays.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from bindery.api.states import ENDED_POD_PHASES
from bindery.kube.objects.watched import Node
from bindery.nodeagent import topologyreport
from bindery.nodeagent.beside import settings as kubeletsettings
from bindery.nodeagent.beside.observed import ObservedKubelet
from bindery.nodeagent.beside.podresources import PodName, PodResources
from bindery.nodeagent.beside.settings import SettingsError
from bindery.nodeagent.candidates import core_pod
from bindery.nodeagent.hardware import KubeletSettings, MachineSettings, with_machine
from bindery.nodeagent.pod_objects import AgentPod
from bindery.nodeagent.topologyreport import Body, Layout
from bindery.nodecore import checkpointfiles, pods, sysfs
from bindery.nodecore.checkpoints import allocations
from bindery.nodecore.errors import CheckpointError, NodeCoreError

STATIC_POD_UID: Final = "kubernetes.io/config.hash"
"""Annotation of the API server's copy of a static pod: the UID that the kubelet uses."""
_STAYS: Final = "the last report stays"
_RUNNING: Final = "Running"


class Origin(StrEnum):
    """What is read; the label of metrics."""

    CONFIGURATION = "configuration"
    CHECKPOINTS = "checkpoints"
    POD_RESOURCES = "podresources"
    MACHINE = "machine"
    API_SERVER = "apiserver"


@dataclass(frozen=True)
class Reading:
    """What was read at one moment.

    Attributes:
        hardware: path below /sys/devices/system -> content.
        configuration: the text of the kubelet's configuration file; None if it was not read.
        files: name of a checkpoint file -> content; without missing ones.
        pods: the pods of the node by the API server.
    """

    node: Node
    hardware: Mapping[str, str]
    configuration: str | None
    files: Mapping[str, bytes] = field(default_factory=dict)
    resources: PodResources = field(default_factory=PodResources)
    pods: Sequence[AgentPod] = ()


@dataclass(frozen=True)
class Outcome:
    """What follows from a reading.

    Attributes:
        body: the object to write; None if the last one stays.
        problems: what was not usable, for people.
    """

    body: Body | None
    problems: Mapping[Origin, str]


class _UnusableError(Exception):
    """There is no report; the text has the reason."""

    def __init__(self, source: Origin, text: str) -> None:
        super().__init__(text)
        self.source = source


class ReportMaker:
    """Makes reports. It keeps the last usable settings, and the machine that they gave."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._settings: KubeletSettings | None = None
        self._known: tuple[object, MachineSettings, Layout] | None = None

    def report(self, reading: Reading) -> Outcome:
        """Return the report of `reading`."""
        problems: dict[Origin, str] = {}
        try:
            settings = self._in_force(reading, problems)
            machine, layout = self._machine(reading, settings)
            body = _body(reading, machine, layout)
        except _UnusableError as error:
            problems[error.source] = f"{error}; {_STAYS}"
            return Outcome(None, problems)
        return Outcome(body, problems)

    def _in_force(self, reading: Reading, problems: dict[Origin, str]) -> KubeletSettings:
        try:
            if reading.configuration is None:
                raise SettingsError("it cannot be read")  # noqa: TRY301  handled as other reasons
            self._settings = kubeletsettings.parse(reading.configuration)
        except SettingsError as error:
            text = f"the kubelet's configuration: {error}"
            if self._settings is None:
                raise _UnusableError(Origin.CONFIGURATION, text) from error
            problems[Origin.CONFIGURATION] = f"{text}; the settings before are believed"
        settings, differences = kubeletsettings.in_force(self._settings, reading.files)
        if differences:
            problems.setdefault(Origin.CONFIGURATION, "; ".join(differences))
        return settings

    def _machine(
        self, reading: Reading, settings: KubeletSettings
    ) -> tuple[MachineSettings, Layout]:
        capacity = reading.node.status.capacity or {}
        key = reading.hardware, settings, capacity
        if self._known is None or self._known[0] != key:
            try:
                hardware = sysfs.machine_of(reading.hardware)
                machine = with_machine(hardware, pods.resources(capacity), settings)
            except (ValueError, NodeCoreError) as error:
                text = f"the kubelet's settings do not fit the machine: {error}"
                raise _UnusableError(Origin.MACHINE, text) from error
            self._known = key, machine, topologyreport.layout_of(machine.config)
        _, machine, layout = self._known
        return replace(machine, devices=reading.resources.devices), layout


def _body(reading: Reading, machine: MachineSettings, layout: Layout) -> Body:
    meta = reading.node.metadata
    try:
        recorded = recorded_uids(reading.files)
        present = [
            pod
            for pod in reading.pods
            if pod.status.phase not in ENDED_POD_PHASES and _is_admitted(pod, recorded)
        ]
        kubelet = ObservedKubelet(
            meta.name,
            machine,
            reading.files,
            [replace(core_pod(pod), uid=kubelet_uid(pod)) for pod in present],
            {
                kubelet_uid(pod): held
                for pod in present
                if (held := reading.resources.held.get(_name(pod))) is not None
            },
        )
    except NodeCoreError as error:
        raise _UnusableError(Origin.CHECKPOINTS, f"the kubelet's checkpoints: {error}") from error
    api_uids = {kubelet_uid(pod): pod.metadata.uid for pod in present}
    return topologyreport.body(kubelet, layout, meta.uid, api_uids)


def kubelet_uid(pod: AgentPod) -> str:
    """Return the UID by which the kubelet knows a pod."""
    return pod.metadata.annotations.get(STATIC_POD_UID, pod.metadata.uid)


def recorded_uids(files: Mapping[str, bytes]) -> frozenset[str]:
    """Return the pods that the kubelet has admitted by any checkpoint.

    Raises:
        CheckpointError: a file is corrupt.
    """
    return frozenset(
        uid for name, blob in sorted(files.items()) for uid in _uids(name, blob) if blob
    )


def _uids(name: str, blob: bytes) -> Iterable[str]:
    try:
        if name == allocations.FILE:
            return allocations.decode(blob)
        return [entry.pod for entry in checkpointfiles.read(blob).entries]
    except CheckpointError as error:
        raise CheckpointError(f"{name}: {error}") from error


def _is_admitted(pod: AgentPod, recorded: frozenset[str]) -> bool:
    """Return whether the kubelet has decided about the pod, so that its files have its resources.

    A pod that it has not admitted yet must stay out, as schedulers deduct it until it is listed.
    """
    return kubelet_uid(pod) in recorded or pod.status.phase == _RUNNING


def _name(pod: AgentPod) -> PodName:
    return PodName(pod.metadata.namespace, pod.metadata.name)
