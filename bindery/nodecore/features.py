"""The kubelet's feature gates that change what nodecore decides, with the defaults of 1.36."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Features:
    """Feature gates.

    Attributes:
        pod_level_resource_managers: PodLevelResourceManagers (alpha). CPU and memory managers
            serve pods with pod-level resources, and checkpoints have the newest version.
        cpu_policy_alpha_options: CPUManagerPolicyAlphaOptions.
        cpu_policy_beta_options: CPUManagerPolicyBetaOptions.
        memory_qos: MemoryQoS (alpha). cgroup v2 memory.min, memory.low and memory.high are set.
    """

    pod_level_resource_managers: bool = False
    cpu_policy_alpha_options: bool = False
    cpu_policy_beta_options: bool = True
    memory_qos: bool = False


DEFAULT = Features()
