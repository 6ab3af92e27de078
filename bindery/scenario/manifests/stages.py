"""Which pods of new PodGroups come later: those of later stages. Used by `submission`."""

from collections.abc import Iterable, Mapping

from bindery.kube.objects.membership import Claims
from bindery.kube.objects.podgroups import PodGroup, SubGroup
from bindery.kube.objects.watched import Pod
from bindery.scheduler.insight.arrivals import Arrival
from bindery.scheduler.model.jobs import JobKey


def later_pods(groups: Iterable[PodGroup], pods: Iterable[Pod]) -> list[Arrival]:
    """Return the pods of `pods` that controllers create when earlier stages of `groups` run."""
    staged = [group for group in groups if any(each.after for each in group.spec.sub_groups)]
    claims = Claims(staged)
    trees = {
        (group.metadata.namespace, group.metadata.name): {
            each.name: each for each in group.spec.sub_groups
        }
        for group in staged
    }
    found: list[Arrival] = []
    for pod in pods if staged else ():
        member, namespace = claims.of(pod), pod.metadata.namespace
        tree = trees.get((namespace, member.group), {})
        after = _before(tree, member.sub_group)
        if after:
            key = JobKey(namespace, member.group, True)
            found.append(Arrival(pod, key, member.sub_group, after))
    return found


def _before(tree: Mapping[str, SubGroup], name: str) -> tuple[tuple[str, str], ...]:
    """Return what a sub-group comes after, with what the groups above it come after."""
    found: list[tuple[str, str]] = []
    group = tree.get(name)
    while group is not None:
        found += ((each.sub_group, each.condition) for each in group.after)
        group = tree.get(group.parent) if group.parent else None
    return tuple(found)
