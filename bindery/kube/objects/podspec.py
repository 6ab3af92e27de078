"""Pod specs as msgspec structs: containers, scheduling constraints, volumes.

Part of the objects that `watched.py` declares, by the same rules: only fields that are read,
frozen, and not tracked by the garbage collector. Read by the scheduler's model; scenarios and tests
build pod specs.
"""

from typing import Any

import msgspec

from bindery.kube.objects.selectors import LabelSelector


class ContainerClaim(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """A use of one of the pod's claims: of one request, or of all."""

    name: str = ""
    request: str = ""


class ResourceRequirements(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    requests: dict[str, str] | None = None
    limits: dict[str, str] | None = None
    claims: list[ContainerClaim] | None = None


class ContainerPort(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = ""


class RestartRule(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`v1.ContainerRestartRule`."""

    action: str = ""


class VolumeMount(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    bind_mount_options: list[str] | None = None


class Container(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    name: str = ""
    image: str = ""
    resources: ResourceRequirements | None = None
    ports: list[ContainerPort] | None = None
    restart_policy: str | None = None
    """On an init container, `Always` makes it a sidecar (KEP-753)."""
    restart_policy_rules: list[RestartRule] | None = None
    volume_mounts: list[VolumeMount] | None = None


class NodeSelectorRequirement(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    key: str
    operator: str
    values: list[str] | None = None


class NodeSelectorTerm(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    match_expressions: list[NodeSelectorRequirement] | None = None
    match_fields: list[NodeSelectorRequirement] | None = None


class NodeSelector(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    node_selector_terms: list[NodeSelectorTerm] = msgspec.field(default_factory=list)


class PreferredSchedulingTerm(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    weight: int
    preference: NodeSelectorTerm


class NodeAffinity(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    required: NodeSelector | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: list[PreferredSchedulingTerm] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    topology_key: str = ""
    label_selector: LabelSelector | None = None
    """None selects no pod; an empty selector selects all."""
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None
    """None selects no namespace; an empty selector selects all."""
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class WeightedPodAffinityTerm(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    weight: int
    pod_affinity_term: PodAffinityTerm


class PodAffinity(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Pod affinity or anti-affinity."""

    required: list[PodAffinityTerm] | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: list[WeightedPodAffinityTerm] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class TopologySpreadConstraint(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    topology_key: str = ""
    max_skew: int = 1
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    """None selects no pod; an empty selector selects all."""
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None


class SchedulingGate(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    name: str = ""


class PodResourceClaim(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PersistentVolumeClaimSource(
    msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False
):
    claim_name: str = ""


class GcePersistentDisk(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    pd_name: str = ""
    read_only: bool = False


class AwsElasticBlockStore(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    volume_id: str = msgspec.field(default="", name="volumeID")


class AzureDisk(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    disk_uri: str = msgspec.field(default="", name="diskURI")


class Cinder(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    volume_id: str = msgspec.field(default="", name="volumeID")


class PortworxVolume(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    volume_id: str = msgspec.field(default="", name="volumeID")


class Iscsi(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    iqn: str = ""
    read_only: bool = False


class Rbd(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    monitors: list[str] = msgspec.field(default_factory=list)
    pool: str = "rbd"
    image: str = ""
    read_only: bool = False


class MigratedSources(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """In-tree disks, of a pod or a PersistentVolume, that Kubernetes migrates to CSI drivers."""

    gce_persistent_disk: GcePersistentDisk | None = None
    aws_elastic_block_store: AwsElasticBlockStore | None = None
    azure_disk: AzureDisk | None = None
    cinder: Cinder | None = None
    portworx_volume: PortworxVolume | None = None


class ImageVolume(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    reference: str = ""


class EmptyDirSource(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    medium: str = ""


class HostPathSource(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    path: str = ""


class Volume(MigratedSources, frozen=True, rename="camel", kw_only=True, gc=False):
    name: str = ""
    persistent_volume_claim: PersistentVolumeClaimSource | None = None
    ephemeral: dict[str, Any] | None = None
    image: ImageVolume | None = None
    empty_dir: EmptyDirSource | None = None
    host_path: HostPathSource | None = None
    iscsi: Iscsi | None = None
    rbd: Rbd | None = None

    @property
    def has_local_data(self) -> bool:
        """Whether the volume keeps data on the node."""
        is_on_disk = self.empty_dir is not None and self.empty_dir.medium != "Memory"
        return self.host_path is not None or is_on_disk


class SchedulingGroup(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    pod_group_name: str = ""


class PodSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    node_name: str = ""
    scheduler_name: str = ""
    host_network: bool = False
    host_users: bool | None = None
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    containers: list[Container] = msgspec.field(default_factory=list)
    init_containers: list[Container] | None = None
    overhead: dict[str, str] | None = None
    resources: ResourceRequirements | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration] | None = None
    topology_spread_constraints: list[TopologySpreadConstraint] | None = None
    scheduling_gates: list[SchedulingGate] | None = None
    scheduling_group: SchedulingGroup | None = None
    resource_claims: list[PodResourceClaim] | None = None
    volumes: list[Volume] | None = None
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None
