"""Which container of the runtime is which container of a pod."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from bindery.nodecore.pods import Pod

Ref = tuple[str, str]
"""Pod UID and container name."""

ContainerIds = Mapping[str, Ref]
"""Container id of the runtime -> pod UID and container name."""


@dataclass
class ContainerMap:
    """The containers that have been created, by the runtime's id."""

    refs: dict[str, Ref] = field(default_factory=dict)

    def add(self, pod_uid: str, container: str, container_id: str) -> None:
        """Record a container."""
        self.refs[container_id] = (pod_uid, container)

    def ref(self, container_id: str) -> Ref | None:
        """Return the pod and the name of a container, None if it is unknown."""
        return self.refs.get(container_id)

    def remove(self, container_id: str) -> None:
        """Remove a container."""
        self.refs.pop(container_id, None)

    def remove_ref(self, ref: Ref) -> None:
        """Remove the container of a pod, under whatever id it has."""
        self.refs = {key: value for key, value in self.refs.items() if value != ref}

    def has_ref(self, ref: Ref) -> bool:
        """Return whether a container of this pod and name is known."""
        return ref in self.refs.values()


def stale(
    recorded: Mapping[str, Mapping[str, object]], known: ContainerMap, pods: Iterable[Pod]
) -> list[Ref]:
    """Return the recorded and known containers that belong to none of the active `pods`."""
    active = {(pod.uid, one.name) for pod in pods for one in pod.all_containers}
    refs = [(uid, name) for uid, inner in recorded.items() for name in inner]
    return sorted({ref for ref in (*refs, *known.refs.values()) if ref not in active})
