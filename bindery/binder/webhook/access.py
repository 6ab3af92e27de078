"""Reviews pods, PodGroups and workloads by the rules of queues. Pure.

A change is refused only for new problems, not for problems that existed before.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Final

import msgspec

from bindery.api import gpushare
from bindery.api.mistakes import mistaken_keys_of_owner
from bindery.api.names import NODE_POOL_LABEL
from bindery.api.podvalues import wrong_values
from bindery.binder.webhook.answers import Manifest, Review, answer, request_in, verdict
from bindery.binder.webhook.applicants import (
    DEFAULT_SCHEDULER,
    Template,
    is_excepted,
    is_to_adopt,
    mistakes_of_pod,
    part,
    templates,
    text,
    wish_of_group,
    wish_of_pod,
    wish_of_template,
)
from bindery.binder.webhook.changes import patch
from bindery.binder.webhook.directory import Directory
from bindery.kube.objects import reading
from bindery.kube.objects.podgroups import SubGroup
from bindery.kube.objects.subgrouptree import SubGroupTreeError, tree_of

_BOUND_PODS: Final = (
    "pods that are bound stay preemptible until the quota of their queue has room for them"
)


class PodAccess:
    """Checks pods, in the form of a webhook plugin."""

    name = "queue access"

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    def validate(self, pod: Manifest) -> list[str]:
        """Return the reasons why `pod` may not use its queue."""
        namespace = text(part(pod, "metadata"), "namespace")
        wish = wish_of_pod(pod, namespace, self._directory)
        return wish.problems(namespace, self._directory) if wish is not None else []


class Access:
    """Reviews the objects that create pods of the scheduler `scheduler_name`."""

    def __init__(self, directory: Directory, scheduler_name: str) -> None:
        self._directory = directory
        self._scheduler_name = scheduler_name

    def adopt(self, body: bytes) -> Review:
        """Set Bindery as scheduler of a pod in an enabled namespace, unless it names another.

        Raises:
            MalformedReviewError: the review cannot be read.
        """
        request = request_in(body)
        pod: Manifest = request["object"]
        if not is_to_adopt(part(pod, "metadata"), part(pod, "spec")):
            return answer(request, allowed=True)
        spec = {**part(pod, "spec"), "schedulerName": self._scheduler_name}
        return answer(request, allowed=True, **patch(pod, {**pod, "spec": spec}))

    def validate_workload(self, body: bytes) -> Review:
        """Refuse an object with wrong keys or values, or with pods that may not use their queue.

        Warn about a queue that is not served, a PriorityClass that does not exist, and a node pool
        that the pods do not get.

        Raises:
            MalformedReviewError: the review cannot be read.
        """
        request = request_in(body)
        namespace = text(request, "namespace")
        known = set(self.problems_in(request.get("oldObject"), namespace))
        found = dict.fromkeys(self.problems_in(request.get("object"), namespace))
        problems = [problem for problem in found if problem not in known]
        return verdict(request, problems, self._new_warnings(request, namespace))

    def validate_group(self, body: bytes) -> Review:
        """Refuse a PodGroup with a forbidden queue, or no tree; warn if it will wait.

        Raises:
            MalformedReviewError: the review cannot be read.
        """
        request = request_in(body)
        namespace, directory = text(request, "namespace"), self._directory
        new = part(part(request, "object"), "spec")
        old = part(request, "oldObject")
        wish = wish_of_group(new, namespace, directory)
        known = wish_of_group(part(old, "spec"), namespace, directory).problems(
            namespace, directory
        )
        found = wish.problems(namespace, directory)
        problems = [problem for problem in found if not old or problem not in known]
        if not old or part(old, "spec").get("subGroups") != new.get("subGroups"):
            problems += _flaws(new.get("subGroups"))
        warnings = [*self._obstacles(wish.queue, wish.priority_class)]
        if old and text(part(old, "status"), "queue") and wish.is_pinned(directory):
            before = wish_of_group(part(old, "spec"), namespace, directory)
            if not before.is_pinned(directory):
                warnings.append(_BOUND_PODS)
        return verdict(request, problems, warnings)

    def _new_warnings(self, request: Review, namespace: str) -> list[str]:
        """Return the reasons why the pods of a workload will wait, if the change is their cause."""
        known = set(self._asked_in(request.get("oldObject"), namespace))
        asked = dict.fromkeys(self._asked_in(request.get("object"), namespace))
        found = [self._obstacles(*each) for each in asked if each not in known]
        before = set(self._pools_in(request.get("oldObject"), namespace))
        pools = self._pools_in(request.get("object"), namespace)
        found.append(each for each in pools if each not in before)
        return list(dict.fromkeys(chain.from_iterable(found)))

    def _pools_in(self, item: object, namespace: str) -> Iterator[str]:
        """Yield the node pools of owners that differ from those of their pod templates."""
        for template in self._ours_in(item, namespace):
            own = text(part(template.own, "labels"), NODE_POOL_LABEL)
            for owner in template.owners:
                pool = text(part(owner, "labels"), NODE_POOL_LABEL)
                if pool and pool != own:
                    has = f"has {own!r}" if own else "has none"
                    yield (
                        f"{NODE_POOL_LABEL}: {pool!r} has no effect on the workload: the pods get "
                        f"the label of their template, which {has}"
                    )

    def _obstacles(self, queue_name: str, priority_class: str) -> Iterator[str]:
        """Yield the reasons why an allowed gang will wait."""
        yield from self._of_queue(queue_name)
        if priority_class and self._directory.priority(priority_class) is None:
            yield f"PriorityClass {priority_class} does not exist: the gang waits until it does"

    def _of_queue(self, name: str) -> Iterator[str]:
        queue = self._directory.queue(name)
        if queue is None and name != "default":
            yield f"queue {name} does not exist: the gang waits until it does"
        elif queue is not None and queue.spec.state == "Closed":
            yield f"queue {name} is closed: the gang waits until it is open"

    def problems_in(self, item: object, namespace: str) -> Iterator[str]:
        """Yield the reasons why pods of a workload may not use their queues."""
        for template in self._ours_in(item, namespace):
            wish = wish_of_template(template, namespace, self._directory)
            yield from wish.problems(namespace, self._directory)
            yield from mistakes_of_pod(template.own)
            annotations = part(template.own, "annotations")
            texts = {key: text for key, text in annotations.items() if isinstance(text, str)}
            yield from gpushare.wrong_values(texts)
            for owner in template.owners:
                annotations, labels = part(owner, "annotations"), part(owner, "labels")
                yield from mistaken_keys_of_owner(annotations, labels)
                yield from wrong_values(annotations, labels)

    def _asked_in(self, item: object, namespace: str) -> Iterator[tuple[str, str]]:
        """Yield queue and PriorityClass of the pods of `item`."""
        for template in self._ours_in(item, namespace):
            wish = wish_of_template(template, namespace, self._directory)
            yield wish.queue, wish.priority_class

    def _ours_in(self, item: object, namespace: str) -> Iterator[Template]:
        for template in templates(item) if isinstance(item, dict) else ():
            if self._is_ours(template, namespace):
                yield template

    def _is_ours(self, template: Template, namespace: str) -> bool:
        named = text(template.spec, "schedulerName") or DEFAULT_SCHEDULER
        if named != DEFAULT_SCHEDULER or not self._directory.is_enabled(namespace):
            return named == self._scheduler_name
        return not is_excepted(template.chain[-1] if template.chain else {})


def _flaws(sub_groups: object) -> Iterator[str]:
    """Yield why the sub-groups of a PodGroup form no tree; the API server checks types."""
    try:
        tree_of(reading.convert(sub_groups or [], list[SubGroup]))
    except SubGroupTreeError as error:
        yield str(error)
    except msgspec.ValidationError:
        return
