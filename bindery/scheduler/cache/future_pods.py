"""Pods of later stages that do not exist yet, from the templates of their PodGroup.

Used by tasks.py. A future pod has what planning reads of a pod: its shape, labels and priority. Its
volumes and resource claims are left out, because nothing binds them before the pod exists.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from bindery.kube.objects.podgroups import PodGroup, PodTemplate
from bindery.kube.objects.podtemplates import PodTemplateError, pod_spec
from bindery.kube.objects.watched import Meta, Pod
from bindery.scheduler.cache.members import JobMembership
from bindery.scheduler.cache.pod_shapes import PodShapes
from bindery.scheduler.cache.priorities import PriorityClasses
from bindery.scheduler.cache.reading import read_pod
from bindery.scheduler.model.jobs import Job, JobKey, Task, TaskStatus, Uid
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.model.state import PlanState


def future_uid(group: Uid, leaf: str, index: int) -> Uid:
    """Return the UID that stands for a pod of the sub-group `leaf` of the PodGroup `group`."""
    return Uid(f"{group}/{leaf}-{index}")


class FuturePods:
    """The templates by PodGroup and sub-group."""

    def __init__(
        self,
        state: PlanState,
        shapes: PodShapes,
        priority_classes: PriorityClasses,
        scheduler_name: str,
    ) -> None:
        self._state = state
        self._shapes = shapes
        self._priority_classes = priority_classes
        self._scheduler_name = scheduler_name
        self._templates: dict[JobKey, dict[str, Pod]] = {}

    def put(self, job: Job, group: PodGroup) -> Iterator[tuple[Uid, Shape]]:
        """Replace the templates of `job`; yield the pods to which this gives new shapes."""
        yield from self.remove(job)
        if job.stages:
            self._state.staged[job.key] = job
        found: dict[str, Pod] = {}
        for each in group.spec.sub_groups:
            if each.template is not None:
                try:
                    found[each.name] = self._pod(group.metadata, each.name, each.template)
                except PodTemplateError as error:
                    job.invalid = f"spec.subGroups: the template of {each.name}: {error}"
        if found:
            self._templates[job.key] = found
        for pod in found.values():
            yield from self._shapes.note(pod, ours=True)

    def remove(self, job: Job) -> Iterator[tuple[Uid, Shape]]:
        """Forget the templates of `job`; yield the pods to which this gives new shapes."""
        self._state.staged.pop(job.key, None)
        for pod in self._templates.pop(job.key, {}).values():
            yield from self._shapes.forget(Uid(pod.metadata.uid))

    def task(self, job: Job, leaf: str) -> Task | None:
        """Return the first future pod of the sub-group `leaf` of `job`; None without a template.

        The others differ from it by name and UID only. It is not entered into the state.
        """
        template = self._templates.get(job.key, {}).get(leaf)
        if template is None:
            return None
        shape, place = self._shapes.of(template, ours=True), JobMembership(job.key, leaf)
        meta = template.metadata
        first = replace(meta, name=f"{meta.name}-0", uid=future_uid(job.uid, leaf, 0))
        pod = replace(template, metadata=first)
        task = read_pod(pod, TaskStatus.PENDING, shape, self._scheduler_name, place)
        task.is_future = True
        if not task.has_own_priority:
            task.priority = self._priority_classes.default
        task.is_preemptible = self._priority_classes.asks_preemptible(job, task)
        task.queue, task.queue_row = job.queue, self._state.queues.row(job.queue)
        return task

    def _pod(self, meta: Meta, leaf: str, template: PodTemplate) -> Pod:
        spec = replace(
            pod_spec(template),
            node_name="",
            scheduler_name=self._scheduler_name,
            volumes=None,
            resource_claims=None,
        )
        return Pod(
            metadata=Meta(
                name=f"{meta.name}-{leaf}",
                namespace=meta.namespace,
                uid=f"{meta.uid}/{leaf}",
                labels=template.metadata.labels,
                annotations=template.metadata.annotations,
            ),
            spec=spec,
        )
