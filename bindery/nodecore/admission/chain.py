"""The admission checks in the kubelet's order. The first refusal counts.

The order is: eviction, sysctls, topology manager (which allocates), predicates, AppArmor, features,
shutdown. What the topology manager has allocated for a pod that a later check refuses stays until
the managers remove stale state.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bindery.nodecore.admission import preemption, sysctls
from bindery.nodecore.admission.facts import Candidate, NodeCondition, NodeFacts
from bindery.nodecore.admission.predicates import Insufficient, failures
from bindery.nodecore.admission.result import ADMITTED, UNEXPECTED, Admission
from bindery.nodecore.errors import NodeCoreError
from bindery.nodecore.pods import Pod, QosClass

Check = Callable[[Candidate, NodeFacts], Admission]

OS_LABEL: Final = "kubernetes.io/os"
_LINUX: Final = "linux"


@dataclass(frozen=True)
class Managers:
    """The parts of the node agent that admission calls.

    Attributes:
        admit: the topology manager's decision; it allocates.
        sanitized: maps a pod UID and the allocatable amounts to the amounts that the device manager
            sees for the pod.
        stop: stops a pod that makes room for a critical one.
    """

    admit: Callable[[Pod], Admission]
    sanitized: Callable[[str, Mapping[str, int]], Mapping[str, int]]
    stop: Callable[[Candidate], None]


def admit(candidate: Candidate, node: NodeFacts, checks: Sequence[Check]) -> Admission:
    """Return the first refusal, or that the pod may run."""
    for check in checks:
        found = check(candidate, node)
        if not found.admit:
            return found
    return ADMITTED


def checks(managers: Managers) -> list[Check]:
    """Return all checks in the kubelet's order."""

    def topology(candidate: Candidate, node: NodeFacts) -> Admission:
        del node
        return managers.admit(candidate.pod)

    def predicates(candidate: Candidate, node: NodeFacts) -> Admission:
        return check_predicates(candidate, node, managers)

    return [
        check_pressure,
        check_sysctls,
        topology,
        predicates,
        check_app_armor,
        check_features,
        check_shutdown,
    ]


def check_pressure(candidate: Candidate, node: NodeFacts) -> Admission:
    """Refuse pods on a node under pressure.

    Critical pods may always run. Under memory pressure alone, so may pods that are not BestEffort
    or tolerate it.
    """
    if not node.conditions or candidate.is_critical:
        return ADMITTED
    if list(node.conditions) == [NodeCondition.MEMORY_PRESSURE] and (
        candidate.pod.qos != QosClass.BEST_EFFORT or candidate.tolerates_memory_pressure
    ):
        return ADMITTED
    listed = " ".join(node.conditions)
    return Admission(False, "Evicted", f"The node had condition: [{listed}]. ")


def check_sysctls(candidate: Candidate, node: NodeFacts) -> Admission:
    """Refuse pods with sysctls that are not allowed."""
    for name in candidate.sysctls:
        why = sysctls.refusal(
            name,
            node.allowed_sysctls,
            host_network=candidate.host_network,
            host_ipc=candidate.host_ipc,
        )
        if why is not None:
            return Admission(False, "SysctlForbidden", f"forbidden sysctl: {why}")
    return ADMITTED


def check_predicates(candidate: Candidate, node: NodeFacts, managers: Managers) -> Admission:
    """Refuse pods that do not fit; a critical pod stops others to fit."""
    refusal = _check_system(candidate, node)
    if refusal is not None:
        return refusal
    try:
        allocatable = managers.sanitized(candidate.pod.uid, node.allocatable)
    except NodeCoreError as error:
        message = f"Update plugin resources failed due to {error}, which is unexpected."
        return Admission(False, UNEXPECTED, message)
    found = failures(candidate, node, allocatable)
    if found and candidate.is_critical:
        others = [one for one in found if not isinstance(one, Insufficient)]
        if not others:
            missing = {one.resource: one.missing for one in found if isinstance(one, Insufficient)}
            return _preempt(candidate, node, missing, managers)
        found = [*others]
    if not found:
        return ADMITTED
    return Admission(False, found[0].reason, found[0].message)


def check_app_armor(candidate: Candidate, node: NodeFacts) -> Admission:
    """Refuse pods whose AppArmor profile cannot be enforced; running pods are not looked at."""
    if candidate.is_pending and node.app_armor_error is not None:
        return Admission(False, "AppArmor", f"Cannot enforce AppArmor: {node.app_armor_error}")
    return ADMITTED


def check_features(candidate: Candidate, node: NodeFacts) -> Admission:
    """Refuse pods that need features which the node does not declare."""
    declared = node.declared_features
    missing = (
        [] if declared is None else [n for n in candidate.required_features if n not in declared]
    )
    if missing:
        message = f"Pod requires node features that are not available: {', '.join(missing)}"
        return Admission(False, "PodFeatureUnsupported", message)
    return ADMITTED


def check_shutdown(candidate: Candidate, node: NodeFacts) -> Admission:
    """Refuse pods while the machine goes down."""
    del candidate
    if node.is_shutting_down:
        message = "Pod was rejected as the node is shutting down."
        return Admission(False, "NodeShutdown", message)
    return ADMITTED


def _check_system(candidate: Candidate, node: NodeFacts) -> Admission | None:
    if candidate.labels.get(OS_LABEL, _LINUX) != _LINUX:
        return Admission(
            False,
            "PodOSSelectorNodeLabelDoesNotMatch",
            "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
        )
    if candidate.os not in (None, _LINUX):
        return Admission(
            False,
            "PodOSNotSupported",
            "Failed to admit pod as the OS field doesn't match node OS",
        )
    if candidate.strict_supplemental_groups and not node.has_supplemental_groups:
        return Admission(
            False,
            "SupplementalGroupsPolicyNotSupported",
            "SupplementalGroupsPolicy=Strict is not supported in this node",
        )
    return None


def _preempt(
    candidate: Candidate, node: NodeFacts, missing: Mapping[str, int], managers: Managers
) -> Admission:
    try:
        chosen = preemption.victims(candidate, node.pods, missing)
    except preemption.NoVictimsError as error:
        return Admission(
            False,
            UNEXPECTED,
            "Unexpected error while attempting to recover from admission failure: preemption: "
            f"error finding a set of pods to preempt: {error}",
        )
    for pod in chosen:
        managers.stop(pod)
    return ADMITTED
