"""Which object a name on the command line means. Used by `explain`."""

from dataclasses import dataclass
from difflib import get_close_matches

from bindery.api.names import NODE_POOL_LABEL
from bindery.cli.cluster import Look
from bindery.cli.errors import CommandError
from bindery.kube.objects import Pod, PodGroup
from bindery.scheduler.cache.reading import job_key
from bindery.scheduler.model.jobs import JobKey

_PREFIXES = {"pod": "pod", "pods": "pod", "podgroup": "group", "podgroups": "group", "pg": "group"}


@dataclass(frozen=True)
class Subject:
    """What the user asks about: a PodGroup, or a pod and its PodGroup if it has one."""

    key: JobKey
    group: PodGroup | None
    pod: Pod | None

    @property
    def node_pool(self) -> str:
        """The pool whose scheduler plans it; empty for the default pool."""
        owner = self.group or self.pod
        return owner.metadata.labels.get(NODE_POOL_LABEL, "") if owner is not None else ""


def subject(seen: Look, name: str, namespace: str) -> Subject:
    """Return what `name` means in `namespace`: a PodGroup before a pod.

    Raises:
        CommandError: there is no such thing; the message names similar ones.
    """
    prefix, _, bare = name.rpartition("/")
    kind = _PREFIXES.get(prefix, "") if prefix else "any"
    if not kind:
        raise CommandError(f"{prefix}/ is not known; write pod/NAME or pg/NAME")
    groups = {g.metadata.name: g for g in seen.groups if g.metadata.namespace == namespace}
    pods = {p.metadata.name: p for p in seen.pods if p.metadata.namespace == namespace}
    if kind in ("any", "group") and bare in groups:
        return Subject(JobKey(namespace, bare, True), groups[bare], None)
    if kind in ("any", "pod") and bare in pods:
        key = job_key(pods[bare])
        return Subject(key, groups.get(key.name) if key.is_group else None, pods[bare])
    known = {"any": [*groups, *pods], "group": [*groups], "pod": [*pods]}[kind]
    what = {"any": "PodGroup or pod", "group": "PodGroup", "pod": "pod"}[kind]
    near = get_close_matches(bare, known, n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    raise CommandError(f"there is no {what} {bare} in namespace {namespace}{hint}")
