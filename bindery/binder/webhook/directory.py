"""The objects that reviews read: queues, namespaces, PriorityClasses and resources of nodes.

Pure; `watching` fills it. Reviews read from memory and never wait for the API server.
"""

from collections.abc import Iterator, Mapping

from bindery.api.names import DEFAULT_QUEUE, ENABLED_LABEL, GPU_MODEL_LABEL, QUEUE_LABEL
from bindery.api.states import MOST_QUEUE_LEVELS
from bindery.binder.webhook.objects import OfferingNode
from bindery.kube.objects.queues import Queue, QueueSpec
from bindery.kube.objects.watched import Namespace, PriorityClass


class Directory:
    """Looks up objects by name."""

    def __init__(
        self,
        queues: Mapping[tuple[str, str], Queue],
        namespaces: Mapping[tuple[str, str], Namespace],
        classes: Mapping[tuple[str, str], PriorityClass],
        nodes: Mapping[tuple[str, str], OfferingNode],
    ) -> None:
        """Use live mappings from (namespace, name), such as those of a `Reflector`."""
        self._queues, self._namespaces, self._classes = queues, namespaces, classes
        self._nodes = nodes

    def queue(self, name: str) -> Queue | None:
        """Return the queue `name`; None if it is not known."""
        return self._queues.get(("", name))

    def queues(self) -> Iterator[Queue]:
        """Yield all queues."""
        yield from self._queues.values()

    def chain(self, name: str) -> Iterator[tuple[str, QueueSpec]]:
        """Yield name and spec of a queue and of the known queues above it."""
        for _ in range(MOST_QUEUE_LEVELS):
            queue = self.queue(name)
            if queue is None:
                return
            yield name, queue.spec
            name = queue.spec.parent or ""

    def has_namespace(self, name: str) -> bool:
        """Return whether the namespace `name` is known."""
        return ("", name) in self._namespaces

    def labels(self, namespace: str) -> Mapping[str, str]:
        """Return the labels of a namespace; none if it is not known."""
        found = self._namespaces.get(("", namespace))
        return found.metadata.labels if found is not None else {}

    def queue_of(self, namespace: str) -> str:
        """Return the default queue of pods in `namespace`."""
        return self.labels(namespace).get(QUEUE_LABEL) or DEFAULT_QUEUE

    def is_enabled(self, namespace: str) -> bool:
        """Return whether pods of `namespace` go to Bindery by default."""
        return self.labels(namespace).get(ENABLED_LABEL) == "true"

    def priority(self, name: str) -> int | None:
        """Return the value of a PriorityClass; None if it is not known."""
        found = self._classes.get(("", name))
        return found.value if found is not None else None

    def priority_classes(self) -> frozenset[str]:
        """Return the names of all PriorityClasses."""
        return frozenset(name for _, name in self._classes)

    def default_class(self) -> str:
        """Return the PriorityClass of pods that name none; "" if there is no default class."""
        defaults = [each for each in self._classes.values() if each.global_default]
        # The API server takes the lowest of several.
        return min(defaults, key=lambda each: each.value).metadata.name if defaults else ""

    def resources(self) -> frozenset[str]:
        """Return the names of the resources that nodes report."""
        return frozenset(
            name for node in self._nodes.values() for name in node.status.allocatable or ()
        )

    def gpu_models(self) -> frozenset[str]:
        """Return the GPU models in the labels of nodes."""
        found = {node.metadata.labels.get(GPU_MODEL_LABEL, "") for node in self._nodes.values()}
        return frozenset(found - {""})
