"""The namespaces: their labels, and the queues that they give to their pods and PodGroups."""

from collections.abc import Mapping

from bindery.api.names import DEFAULT_QUEUE, QUEUE_LABEL
from bindery.kube.objects.watched import Namespace


class Namespaces:
    """Namespace -> its labels, and whether it ends. One that has not been seen has no labels."""

    def __init__(self) -> None:
        self._labels: dict[str, Mapping[str, str]] = {}
        self._ending: set[str] = set()

    def put(self, namespace: Namespace, *, gone: bool) -> bool:
        """Add, update or remove a namespace; return whether its queue has changed."""
        name = namespace.metadata.name
        before = self.queue(name)
        self._ending.discard(name)
        if not gone and namespace.metadata.deletion_timestamp is not None:
            self._ending.add(name)
        if gone:
            self._labels.pop(name, None)
        else:
            self._labels[name] = namespace.metadata.labels
        return self.queue(name) != before

    def is_ending(self, name: str) -> bool:
        """Return whether the namespace `name` is being deleted."""
        return name in self._ending

    def labels(self, name: str) -> Mapping[str, str]:
        """Return the labels of the namespace `name`."""
        return self._labels.get(name, {})

    def queue(self, name: str) -> str:
        """Return the queue of pods and PodGroups in the namespace `name` that name none."""
        return self.labels(name).get(QUEUE_LABEL) or DEFAULT_QUEUE
