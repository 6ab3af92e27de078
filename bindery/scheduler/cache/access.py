"""Whether a job may use its queue, by the rules of queues about namespaces."""

from collections.abc import Iterable, Mapping

from bindery.kube.objects.queueaccess import AccessRefusal, Applicant, access_refusal
from bindery.kube.objects.queues import QueueSpec
from bindery.kube.objects.watched import Pod
from bindery.scheduler.cache.namespaces import Namespaces
from bindery.scheduler.model.jobs import Job, Uid
from bindery.scheduler.model.queues import QueueTable


def refusal_of_job(
    queues: QueueTable, job: Job, pods: Mapping[Uid, Pod], namespaces: Namespaces
) -> AccessRefusal | None:
    """Return why the pending pods of `job` may not be planned in its queue; None if they may."""
    entries = [queues.entries[row] for row in queues.chain(queues.rows[job.queue])]
    chain = [(entry.name, entry.access) for entry in entries if entry.access is not None]
    if not chain:  # the usual case
        return None
    classes = {job.priority_class} if job.priority_class else _classes(job, pods)
    applicant = Applicant(
        job.key.namespace,
        namespaces.labels(job.key.namespace),
        frozenset(name for name in classes if name),
        is_pinned=any(not task.is_preemptible for task in job.pending.values()),
    )
    return access_refusal(chain, applicant)


def refusal_of_pins(
    queues: Iterable[tuple[str, QueueSpec | None]], namespace: str, namespaces: Namespaces
) -> AccessRefusal | None:
    """Return why pods of `namespace` may not become non-preemptible; None if they may.

    `queues`: names and rules of their queue and those above it, bottom up.
    """
    chain = [(name, access) for name, access in queues if access is not None]
    applicant = Applicant(namespace, namespaces.labels(namespace), is_pinned=True)
    return access_refusal(chain, applicant)


def _classes(job: Job, pods: Mapping[Uid, Pod]) -> set[str]:
    """Return the PriorityClasses of the pending pods, by which the job is ordered."""
    return {pods[uid].spec.priority_class_name for uid in job.pending if uid in pods}
