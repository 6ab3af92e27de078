"""Decides about the use of a queue, by the rules of the queue and of the queues above the queue.

Used by the admission webhook, which refuses objects, and by the scheduler, in which a job without
access to its queue waits. Pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from bindery.api.names import NAMESPACE_NAME_LABEL
from bindery.kube.objects.queues import QueueSpec

EVERY_OTHER: Final = "*"
"""Key of `priorityClasses` for the classes that are not listed."""


class AccessReason(StrEnum):
    """Why a job may not use its queue, as conditions show the reason."""

    NAMESPACE_NOT_ALLOWED = "NamespaceNotAllowed"
    PRIORITY_CLASS_NOT_ALLOWED = "PriorityClassNotAllowed"
    NON_PREEMPTIBLE_NOT_ALLOWED = "NonPreemptibleNotAllowed"


@dataclass(frozen=True)
class AccessRefusal:
    """A rule that is broken."""

    reason: AccessReason
    text: str


@dataclass(frozen=True)
class Applicant:
    """A PodGroup, or a pod without a PodGroup, that requests to use a queue."""

    namespace: str
    labels: Mapping[str, str]
    """The labels of the namespace."""
    priority_classes: frozenset[str] = frozenset()
    """The PriorityClasses that the applicant names."""
    is_pinned: bool = False
    """Whether the applicant, or a pod of the applicant, is non-preemptible."""


def has_rules(spec: QueueSpec) -> bool:
    """Return whether not everybody may use the queue in every way."""
    return bool(spec.namespaces or spec.priority_classes or spec.non_preemptible)


def access_refusal(
    chain: Iterable[tuple[str, QueueSpec]], applicant: Applicant
) -> AccessRefusal | None:
    """Return the first broken rule of the queues of `chain`; None if `applicant` may use them.

    Args:
        chain: names and specs of the lowest queue and of all queues above, bottom up.
        applicant: the object that requests to use the lowest queue.
    """
    refusals = (_refusal(name, spec, applicant) for name, spec in chain if has_rules(spec))
    return next((refusal for refusal in refusals if refusal is not None), None)


def _refusal(queue: str, spec: QueueSpec, applicant: Applicant) -> AccessRefusal | None:
    who, labels = applicant.namespace, {NAMESPACE_NAME_LABEL: applicant.namespace}
    labels |= applicant.labels
    if spec.namespaces is not None and not spec.namespaces.takes(who, labels):
        text = f"namespace {who} may not use queue {queue}: spec.namespaces does not include it"
        return AccessRefusal(AccessReason.NAMESPACE_NOT_ALLOWED, text)
    for name in sorted(applicant.priority_classes):
        rule = spec.priority_classes.get(name) or spec.priority_classes.get(EVERY_OTHER)
        if rule is not None and not rule.takes(who, labels):
            text = f"namespace {who} may not use PriorityClass {name} in queue {queue}"
            return AccessRefusal(AccessReason.PRIORITY_CLASS_NOT_ALLOWED, text)
    rule = spec.non_preemptible if applicant.is_pinned else None
    if rule is not None and not rule.takes(who, labels):
        text = f"namespace {who} may have no non-preemptible pods in queue {queue}"
        return AccessRefusal(AccessReason.NON_PREEMPTIBLE_NOT_ALLOWED, text)
    return None
