"""The sub-groups of a gang as a tree of lines, with their pods. Used by `state`."""

from collections import Counter
from collections.abc import Iterator, Mapping

from bindery.answers.amounts import plural
from bindery.kube.objects.podgroups import PodGroup, SubGroup
from bindery.kube.objects.snapshot import ClusterSnapshot, is_bound
from bindery.kube.objects.subgrouptree import SubGroupTreeError, tree_of


def sub_group_lines(snapshot: ClusterSnapshot, group: PodGroup) -> Iterator[str]:
    """Yield a line for each sub-group: its pods, its minimum, and its dependencies."""
    try:
        below = tree_of(group.spec.sub_groups).below
    except SubGroupTreeError:
        return  # the condition of the PodGroup contains the mistake
    pods = snapshot.pods_by_group.get((group.metadata.namespace, group.metadata.name), [])
    counts: Counter[str] = Counter()
    bound: Counter[str] = Counter()
    for pod in pods:
        leaf = snapshot.claims.of(pod).sub_group
        counts[leaf] += 1
        bound[leaf] += is_bound(pod)

    def lines(parent: str, indent: str) -> Iterator[str]:
        for each in below.get(parent, ()):
            if each.name in below:
                yield f"{indent}{each.name}: {_rule(each, len(below[each.name]))}"
                yield from lines(each.name, f"{indent}  ")
            else:
                yield f"{indent}{_leaf(each, bound, counts)}"

    if below:
        yield f"Its sub-groups{_of_all(group, len(below['']))}:"
        yield from lines("", "  ")


def _leaf(leaf: SubGroup, bound: Mapping[str, int], counts: Mapping[str, int]) -> str:
    text = f"{leaf.name}: {bound[leaf.name]} of {counts[leaf.name]} pods bound"
    text += ", all needed" if leaf.min_member is None else f", at least {leaf.min_member} needed"
    if leaf.after:
        text += f", after {' and '.join(f'{a.sub_group} is {a.condition}' for a in leaf.after)}"
    return text


def _rule(group: SubGroup, below: int) -> str:
    least = below if group.min_sub_group is None else group.min_sub_group
    return f"at least {least} of its {plural(below, 'sub-group')} needed"


def _of_all(group: PodGroup, below: int) -> str:
    least = group.spec.min_sub_group
    return "" if least is None else f", at least {least} of {below} needed"
