"""What the workers of all pods of a node share."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from bindery.kube.client import Client
from bindery.kube.events.recorder import EventRecorder, reference_to
from bindery.nodeagent.containers.cgroups import PodCgroupKeeper
from bindery.nodeagent.containers.checks import Checks
from bindery.nodeagent.containers.configs import AgentPlaces, NodeSurroundings
from bindery.nodeagent.containers.downward import PodSurroundings
from bindery.nodeagent.containers.fields import Refusal
from bindery.nodeagent.containers.images import Images
from bindery.nodeagent.containers.objects import PodObjects
from bindery.nodeagent.containers.podspec import RUN_PODS, RunPod
from bindery.nodeagent.containers.resources import NodeResources
from bindery.nodeagent.containers.runtime import Runtime
from bindery.nodeagent.containers.volumes import NodeVolumes
from bindery.nodecore.podsync.restarts import RestartBackoff


@dataclass(frozen=True)
class NodeParts:
    """The parts of the agent.

    Attributes:
        runtime_name: the runtime's name, in the ids of containers.
        refusal: returns why a pod has fields that are not carried out, None if it has none.
    """

    client: Client
    events: EventRecorder
    runtime: Runtime
    runtime_name: str
    objects: PodObjects
    volumes: NodeVolumes
    images: Images
    checks: Checks
    cgroups: PodCgroupKeeper
    resources: NodeResources
    places: AgentPlaces
    node: NodeSurroundings
    around: PodSurroundings
    backoff: RestartBackoff
    refusal: Refusal
    clock: Callable[[], float]
    random: Random

    def report(self, pod: RunPod, kind: str, reason: str, text: str) -> None:
        """Write an event of `pod`; `kind` is Normal or Warning."""
        report(self.events, pod, kind, reason, text)


def report(events: EventRecorder, pod: RunPod, kind: str, reason: str, text: str) -> None:
    """Write an event of `pod`; `kind` is Normal or Warning."""
    write = events.warning if kind == "Warning" else events.normal
    write(reference_to(RUN_PODS, pod), reason, text)
