"""The kubelet's feature gates that change what nodecore decides, with the defaults of 1.36."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Features:
    """Feature gates.

    Attributes:
        pod_level_resource_managers: PodLevelResourceManagers (alpha). CPU and memory managers
            serve pods with pod-level resources, and checkpoints have the newest version.
        cpu_policy_alpha_options: CPUManagerPolicyAlphaOptions.
        cpu_policy_beta_options: CPUManagerPolicyBetaOptions.
        memory_qos: MemoryQoS (alpha). cgroup v2 memory.min, memory.low and memory.high are set.
        node_declared_features: NodeDeclaredFeatures. The node declares its features and refuses
            pods that need others.
        extend_web_sockets_to_kubelet: ExtendWebSocketsToKubelet.
        in_place_pod_level_resources: InPlacePodLevelResourcesVerticalScaling.
        in_place_init_containers: InPlacePodVerticalScalingInitContainers.
        restart_all_containers: RestartAllContainersOnContainerExits.
        user_namespaces_host_network: UserNamespacesHostNetworkSupport (alpha).
    """

    pod_level_resource_managers: bool = False
    cpu_policy_alpha_options: bool = False
    cpu_policy_beta_options: bool = True
    memory_qos: bool = False
    node_declared_features: bool = True
    extend_web_sockets_to_kubelet: bool = True
    in_place_pod_level_resources: bool = True
    in_place_init_containers: bool = True
    restart_all_containers: bool = True
    user_namespaces_host_network: bool = False


DEFAULT = Features()

DECLARABLE: Final[Mapping[str, str]] = {
    "ExtendWebSocketsToKubelet": "extend_web_sockets_to_kubelet",
    "InPlacePodLevelResourcesVerticalScaling": "in_place_pod_level_resources",
    "InPlacePodVerticalScalingInitContainers": "in_place_init_containers",
    "RestartAllContainersOnContainerExits": "restart_all_containers",
    "UserNamespacesHostNetworkSupport": "user_namespaces_host_network",
}
"""Features that a node declares, which are also the names of their gates -> field of `Features`."""

_NEEDS_RUNTIME: Final = "UserNamespacesHostNetworkSupport"


def declared_features(
    features: Features, runtime_has_user_namespaces_on_host_network: bool
) -> tuple[str, ...] | None:
    """Return `status.declaredFeatures` of the node, sorted; None if it declares nothing."""
    if not features.node_declared_features:
        return None
    return tuple(
        name
        for name, field in sorted(DECLARABLE.items())
        if getattr(features, field)
        and (name != _NEEDS_RUNTIME or runtime_has_user_namespaces_on_host_network)
    )
