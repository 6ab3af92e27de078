"""The topology manager: asks the providers for hints, decides, and lets them allocate."""

from collections.abc import Sequence
from typing import Final, Protocol

from bindery.nodecore.admission.result import ADMITTED, Admission, refused
from bindery.nodecore.containers import ContainerMap
from bindery.nodecore.errors import AllocationError, ConfigurationError
from bindery.nodecore.features import DEFAULT, Features
from bindery.nodecore.machine import NumaNode
from bindery.nodecore.pods import Container, Pod
from bindery.nodecore.topology import policies
from bindery.nodecore.topology.hints import Hint, ProviderHints
from bindery.nodecore.topology.numa import NumaInfo, numa_info
from bindery.nodecore.topology.options import TopologyOptions
from bindery.nodecore.topology.policies import NO_OPTIONS, Merged

CONTAINER_SCOPE: Final = "container"
POD_SCOPE: Final = "pod"

TOPOLOGY_AFFINITY_ERROR: Final = "TopologyAffinityError"
NO_LOCALITY: Final = "Resources cannot be allocated with Topology locality"

_NOTHING_DECIDED: Final = Hint(None, preferred=False)


class TopologyAffinityError(AllocationError):
    """No allocation has the locality that the policy asks for."""

    reason = TOPOLOGY_AFFINITY_ERROR


class HintProvider(Protocol):
    """A manager of resources: CPU, memory or devices."""

    def container_hints(self, pod: Pod, container: Container) -> ProviderHints:
        """Return the hints for a container."""

    def pod_hints(self, pod: Pod) -> ProviderHints:
        """Return the hints for a pod as a whole."""

    def allocate(self, pod: Pod, container: Container) -> None:
        """Allocate the container's resources; raises AllocationError if it cannot."""

    def allocate_pod(self, pod: Pod) -> None:
        """Allocate the resources of a pod as a whole; raises AllocationError if it cannot."""


def check_node_count(count: int, options: TopologyOptions = NO_OPTIONS) -> None:
    """Raise ConfigurationError if the machine has too many NUMA nodes."""
    if count > options.max_nodes:
        raise ConfigurationError(
            f"unsupported on machines with more than {options.max_nodes} NUMA Nodes"
        )


class TopologyManager:
    """Decides for each container or pod on which NUMA nodes it gets its resources.

    `scope`: "container" or "pod".

    Raises:
        ConfigurationError: a name is unknown, or the machine has too many NUMA nodes.
    """

    def __init__(
        self,
        nodes: Sequence[NumaNode],
        policy: str = policies.NONE,
        scope: str = CONTAINER_SCOPE,
        options: TopologyOptions = NO_OPTIONS,
        features: Features = DEFAULT,
    ) -> None:
        self.policy = policy
        self.scope = scope
        self._options = options
        self._features = features
        self._numa = NumaInfo(())
        if policy != policies.NONE:
            self._numa = numa_info(nodes, with_distances=options.prefer_closest)
            check_node_count(len(nodes), options)
            policies.merge_hints(policy, self._numa, (), options)  # the name is known
            if scope not in (CONTAINER_SCOPE, POD_SCOPE):
                raise ConfigurationError(f'unknown scope: "{scope}"')
        self._providers: list[HintProvider] = []
        self._decided: dict[tuple[str, str], Hint] = {}
        self._containers = ContainerMap()

    def add_provider(self, provider: HintProvider) -> None:
        """Add a provider; they are asked and allocate in the order in which they are added."""
        self._providers.append(provider)

    def affinity(self, pod_uid: str, container: str) -> Hint:
        """Return the decision for a container; not preferred and no mask if there is none."""
        return self._decided.get((pod_uid, container), _NOTHING_DECIDED)

    def add_container(self, pod: Pod, container: Container, container_id: str) -> None:
        """Record that the runtime has created the container."""
        self._containers.add(pod.uid, container.name, container_id)

    def remove_container(self, container_id: str) -> None:
        """Forget the decision for a container once none with its name is left."""
        ref = self._containers.ref(container_id)
        if ref is None:
            return
        self._containers.remove(container_id)
        if not self._containers.has_ref(ref):
            self._decided.pop(ref, None)

    def admit(self, pod: Pod) -> Admission:
        """Decide for the pod and allocate its resources; return whether it may run.

        What was allocated before a refusal stays until the managers remove stale state.
        """
        try:
            if self.policy == policies.NONE:
                self._allocate_all(pod)
            elif self.scope == CONTAINER_SCOPE:
                self._admit_containers(pod)
            else:
                self._admit_pod(pod)
        except AllocationError as error:
            return refused(error)
        return ADMITTED

    def merged(self, providers: Sequence[ProviderHints]) -> Merged:
        """Return the best hint by this manager's policy."""
        return policies.merge_hints(self.policy, self._numa, providers, self._options)

    def _admit_containers(self, pod: Pod) -> None:
        for container in pod.all_containers:
            hints = [provider.container_hints(pod, container) for provider in self._providers]
            merged = self.merged(hints)
            if not merged.admit:
                raise TopologyAffinityError(self._refusal(pod))
            self._decided[pod.uid, container.name] = merged.hint
            self._allocate(pod, container)

    def _admit_pod(self, pod: Pod) -> None:
        merged = self.merged([provider.pod_hints(pod) for provider in self._providers])
        if not merged.admit:
            raise TopologyAffinityError(self._refusal(pod))
        if self._is_whole(pod):
            for container in pod.all_containers:
                self._decided[pod.uid, container.name] = merged.hint
            for provider in self._providers:
                provider.allocate_pod(pod)
            return
        for container in pod.all_containers:
            self._decided[pod.uid, container.name] = merged.hint
            self._allocate(pod, container)

    def _allocate_all(self, pod: Pod) -> None:
        for container in pod.all_containers:
            self._allocate(pod, container)

    def _allocate(self, pod: Pod, container: Container) -> None:
        for provider in self._providers:
            provider.allocate(pod, container)

    def _is_whole(self, pod: Pod) -> bool:
        return self._features.pod_level_resource_managers and pod.has_pod_level_resources

    def _refusal(self, pod: Pod) -> str:
        if not self._is_whole(pod):
            return NO_LOCALITY
        where = (
            "with a container-level topology manager"
            if self.scope == CONTAINER_SCOPE
            else "under pod-scope topology manager"
        )
        return f"Pod Scope pod with pod-level resources failed admission {where}"
