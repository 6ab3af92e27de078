"""The jobs of a scenario and their pods.

Read by `format`; `objects` makes PodGroups and Pods of them. The fields of a PodGroup are keys of
jobs, but for those with a short form here. Invariant: the pods of a job are
named after it and numbered over all its entries, `a-0`, `a-1`, …
"""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from bindery.api.base import NonNegative
from bindery.kube.objects import podgroups
from bindery.kube.objects.declaredfeatures import FEATURES
from bindery.scenario.constraints import (
    Affinity,
    HostPorts,
    Toleration,
    TopologySpreadConstraint,
)
from bindery.scenario.declared import Declared, keys_of
from bindery.scenario.fields import (
    AnyObject,
    Count,
    Duration,
    Grace,
    Name,
    Quantity,
    ScenarioModel,
    Texts,
)
from bindery.scenario.states import INITIAL_STATES, ON_NODE, PodState


def _texts(value: object) -> object:
    return [str(item) for item in value] if isinstance(value, list) else value


def _known_features(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if name not in FEATURES:
            raise ValueError(f"no pod needs a feature {name}; known: {', '.join(FEATURES)}")
    return names


DeviceIndexes = Annotated[tuple[str, ...], BeforeValidator(_texts)]


class ContainerRequest(ScenarioModel):
    """The requests of a container."""

    gpus: NonNegative = 0
    """Whole devices."""
    gpu_fraction: float | None = None
    """The part of each device."""
    gpu_memory: NonNegative | None = None
    """MiB of each device."""
    gpu_memory_percent: NonNegative | None = None
    """The part of each device's memory, in per cent."""
    gpu_devices: NonNegative | None = None
    """Number of devices, each of which gives this part."""
    gpu_cores: NonNegative | None = None
    """The part of each device's cores, in per cent."""
    cpu: Quantity = "0"
    memory: Quantity = "0"
    resources: dict[str, Quantity] = Field(default_factory=dict)
    images: Texts = ()
    """Images; each after the first belongs to a further container without requests."""


class InitContainer(ContainerRequest):
    """A container that runs before the others, or beside them when it restarts always."""

    restart_policy: Literal["", "Always"] = ""
    host_ports: HostPorts = ()


class GpuSelector(ScenarioModel):
    """The devices that a pod accepts."""

    use: tuple[str, ...] = ()
    avoid: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    avoid_types: tuple[str, ...] = ()


class InTreeDisk(ScenarioModel):
    """A volume of a pod as Kubernetes writes it; it has one of the sources."""

    gce_persistent_disk: AnyObject | None = None
    aws_elastic_block_store: AnyObject | None = None
    azure_disk: AnyObject | None = None
    cinder: AnyObject | None = None
    portworx_volume: AnyObject | None = None
    iscsi: AnyObject | None = None
    rbd: AnyObject | None = None

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        if len(self.model_fields_set) != 1:
            raise ValueError("a disk has exactly one source, such as gcePersistentDisk")
        return self


class ScenarioPod(ContainerRequest):
    """`count` equal pods of a job."""

    count: Count = 1
    init_containers: tuple[InitContainer, ...] = ()
    qos: Literal["Guaranteed", "Burstable", "BestEffort"] = "Burstable"
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    preemptible: bool | None = None
    preemption_policy: Literal["PreemptLowerPriority", "Never"] = "PreemptLowerPriority"
    gpu_selector: GpuSelector = GpuSelector()
    role: str = ""
    sub_group: str = ""
    numa: tuple[NonNegative, ...] = ()
    """The NUMA zones of a pod on a node; empty: the node chooses."""
    gpu_policy: Literal["pack", "spread", "mutex", "numa", "topology"] | None = None
    state: PodState = PodState.PENDING
    node: str = ""
    charged_queue: str = ""
    """The queue that a pod on a node is charged to; empty: the queue of its job."""
    charged_preemptible: bool | None = None
    """Whether a pod on a node is charged as preemptible; default: as it and its job ask."""
    exclusive: bool | None = None
    """Whether a pod on a node holds the exclusive domains that it and its job ask for; default:
    it does."""
    gpu: DeviceIndexes = ()
    """The devices that it holds, by index on the node."""
    node_selector: dict[str, str] = Field(default_factory=dict)
    affinity: Affinity = Affinity()
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    host_ports: HostPorts = ()
    """Ports of the node that its main container takes."""
    scheduler_name: str = ""
    """Another scheduler that has placed or nominated the pod; empty: Bindery."""
    nominated_node: str = ""
    """The node for which that scheduler has nominated the pod, which waits."""
    required_features: Annotated[tuple[str, ...], AfterValidator(_known_features)] = ()
    """The features that its node must declare."""
    claims: tuple[Name, ...] = ()
    """Names of resource claims, or of templates from which each pod gets one of its own."""
    volumes: tuple[Name | InTreeDisk, ...] = ()
    """Names of persistent volume claims, and disks that it names itself."""
    local_data: bool = False
    """Whether it has an emptyDir volume on the disk of its node."""
    spec: AnyObject = Field(default_factory=dict)
    """Its spec as Kubernetes writes it, with the fields that no other key gives."""

    @model_validator(mode="after")
    def _is_consistent(self) -> "ScenarioPod":
        if self.state not in INITIAL_STATES:
            raise ValueError(f"a pod cannot begin as {self.state}; use bindRequests for Binding")
        if "{i}" in self.node:
            raise ValueError(
                f"node {self.node}: {{i}} counts in names of nodes and jobs only; "
                "write one entry of pods for each node"
            )
        if self.state in ON_NODE and not self.node:
            raise ValueError(f"a pod that is {self.state} needs a node")
        if self.node and self.state in (PodState.PENDING, PodState.GATED):
            raise ValueError(f"a pod that is {self.state} has no node")
        if self.scheduler_name and self.state not in ON_NODE and not self.nominated_node:
            raise ValueError(f"a pod that is {self.state} has no schedulerName")
        if self.nominated_node and (not self.scheduler_name or self.state is not PodState.PENDING):
            raise ValueError("nominatedNode needs a pod that is Pending and has a schedulerName")
        if self.charged_queue and self.state not in ON_NODE:
            raise ValueError(f"a pod that is {self.state} has no chargedQueue")
        if self.charged_preemptible is not None and self.state not in ON_NODE:
            raise ValueError(f"a pod that is {self.state} has no chargedPreemptible")
        if self.exclusive is not None and self.state not in ON_NODE:
            raise ValueError(f"a pod that is {self.state} has no exclusive domain")
        if self.qos == "BestEffort" and (self.cpu != "0" or self.memory != "0"):
            raise ValueError("a BestEffort pod asks for no cpu and no memory")
        return self


@keys_of(podgroups.SubGroup)
class SubGroup(Declared):
    """A part of a job with a minimum of its own."""

    name: Name
    template: ScenarioPod | None = None
    """The requests of its pods. Their room is planned before they exist."""


class Owner(ScenarioModel):
    """A workload to which a job belongs."""

    kind: Name
    name: Name


@keys_of(
    podgroups.PodGroupSpec,
    without=(
        "members",
        "preemptibility",
        "priority_class_name",
        "staleness_grace_period_seconds",
    ),
)
class ScenarioJob(Declared):
    """A gang, or `count` gangs with names that differ in `{i}`."""

    name: Name
    count: Annotated[Count, Field(ge=1)] = 1
    namespace: Name = "default"
    queue: Name | None = None
    """Default: that of the namespace, by its label, else `default`."""
    labels: dict[str, str] = Field(default_factory=dict)
    """The labels of its PodGroup."""
    owners: tuple[Owner, ...] = ()
    """The workloads of the job; `bindery explain` also finds it by their names."""
    priority: str | int = "train"
    """A priority class or a number."""
    preemptible: bool | None = None
    min_member: NonNegative | None = None
    """Default: all pods of the job that are in no sub-group."""
    sub_groups: tuple[SubGroup, ...] = ()
    runtime: Duration | None = None
    """How long its pods have run that begin on a node."""
    pending_for: Duration | None = None
    """How long its pods have waited that begin without a node."""
    stale_for: Duration | None = None
    """How long it has been below its minimum."""
    staleness_grace: Grace | None = None
    """How long it may stay below its minimum; negative: for ever."""
    ran: Duration = 0.0
    """How long it ran before, which counts for its limit."""
    spread_devices: bool = False
    """Whether no two of its pods share a device."""
    recreate: bool = True
    """Whether a released pod of this job comes back Pending."""
    pods: tuple[ScenarioPod, ...] = ()

    @property
    def pod_count(self) -> int:
        """The number of pods of one job."""
        return sum(pod.count for pod in self.pods)

    @property
    def least_pods(self) -> int:
        """The minimum number of pods, apart from its roles and sub-groups."""
        if self.min_member is not None:
            return self.min_member
        return sum(pod.count for pod in self.pods if not (self.sub_groups and pod.sub_group))
