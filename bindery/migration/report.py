"""What a migration gives: objects of Bindery, and what does not carry over."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bindery.api.names import API_VERSION
from bindery.grouper.marks.foreign import Body, Loss, metadata_of, shortened


@dataclass(frozen=True, slots=True)
class Finding:
    """A field of one object that does not carry over."""

    object: str
    """Kind and name, with the namespace before it where there is one."""
    loss: Loss


@dataclass
class Migration:
    """The result of a migration, filled object by object."""

    objects: list[dict[str, Any]] = field(default_factory=list)
    """To be applied, in this order."""
    configurations: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Node pool -> SchedulerConfiguration; "" is the default pool."""
    findings: list[Finding] = field(default_factory=list)

    def add(self, kind: str, metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> None:
        """Add an object of ours."""
        self.objects.append(
            {
                "apiVersion": API_VERSION,
                "kind": kind,
                "metadata": dict(metadata),
                "spec": dict(spec),
            }
        )

    def sort_queues(self) -> None:
        """Put each queue after the one above it, as an admission webhook may demand."""
        above = {
            each["metadata"]["name"]: each["spec"].get("parent")
            for each in self.objects
            if each["kind"] == "Queue"
        }

        def depth(each: Mapping[str, Any]) -> int:
            passed: set[str] = set()
            name = each["metadata"]["name"]
            while name in above and name not in passed:  # parents may form a cycle
                passed.add(name)
                name = above[name]
            return len(passed)

        self.objects.sort(key=lambda each: depth(each) if each["kind"] == "Queue" else 0)
        kinds = ("PriorityClass", "Topology", "HyperNode", "Queue", "PodGroup")
        self.objects.sort(key=lambda each: kinds.index(each["kind"]))

    def lose(self, body: Body, path: str, value: object, reason: str) -> None:
        """Record that a field of the object `body` does not carry over."""
        self.take(body, [Loss(path, shortened(value), reason)])

    def take(self, body: Body, losses: Sequence[Loss]) -> None:
        """Record the `losses` of the object `body`."""
        self.findings += [Finding(named(body), loss) for loss in losses]


def named(body: Body) -> str:
    """Return kind and name of an object, as messages show it."""
    meta = metadata_of(body)
    name = str(meta.get("name", "?"))
    place = f"{meta['namespace']}/{name}" if meta.get("namespace") else name
    return f"{body.get('kind', '?')} {place}"


def kept_metadata(body: Body, pool_label: str = "", our_pool_label: str = "") -> dict[str, Any]:
    """Return name, namespace and labels of an object, as far as they mean something here.

    `pool_label`: the label of node pools for the other scheduler.
    """
    meta = metadata_of(body)
    kept: dict[str, Any] = {"name": str(meta.get("name", ""))}
    if meta.get("namespace"):
        kept["namespace"] = str(meta["namespace"])
    pool = (meta.get("labels") or {}).get(pool_label)
    if pool:
        kept["labels"] = {our_pool_label: str(pool)}
    return kept


def is_owned(body: Body) -> bool:
    """Return whether a controller has made the object."""
    owners = metadata_of(body).get("ownerReferences") or ()
    return any(isinstance(owner, Mapping) for owner in owners)


def by_name(bodies: Sequence[Body], kind: str, group: str) -> list[Body]:
    """Return the objects of `kind` in API group `group`, in the order of namespace and name."""
    found = [
        body
        for body in bodies
        if body.get("kind") == kind and str(body.get("apiVersion", "")).split("/")[0] == group
    ]
    return sorted(found, key=named)
