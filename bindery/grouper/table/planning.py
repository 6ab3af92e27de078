"""Interprets the rows: from owners and pods to PodGroups.

The result is a function of the owners and the set of pods: neither their order nor the order in
which they came matters.
"""

from collections.abc import Iterable, Mapping

from bindery.api import names
from bindery.grouper.table import settings
from bindery.grouper.table.asked import Surroundings
from bindery.grouper.table.assembly import assemble
from bindery.grouper.table.facts import KubeObject, PodFacts
from bindery.grouper.table.groups import GroupPlan, Problem, ProblemReason, WantedObject
from bindery.grouper.table.loading import Table
from bindery.grouper.table.targets import Finder, Target
from bindery.grouper.table.walk import Chain, Owners


def plan(
    owners: Mapping[str, KubeObject],
    pods: Iterable[PodFacts],
    table: Table,
    surroundings: Surroundings | None = None,
) -> GroupPlan:
    """Return the PodGroups of `pods`, all of one namespace.

    `owners`: by UID, the objects that the chains of the pods lead through, and those that an
    earlier plan wanted. Pods that name their PodGroup themselves, in our annotation or in
    `spec.schedulingGroup`, are in no group of the plan.
    """
    around = surroundings or Surroundings()
    by_uid = {pod.uid: pod for pod in pods}
    walker = Owners(owners, by_uid, around.unreadable)
    problems: set[Problem] = set()
    wanted: set[WantedObject] = set()
    found: dict[tuple[str, str], list[tuple[Target, Chain]]] = {}
    finder = Finder(table, walker, problems)
    for pod in sorted(by_uid.values(), key=lambda each: (each.created, each.name, each.uid)):
        if pod.scheduling_group or names.POD_GROUP_ANNOTATION in pod.annotations:
            continue
        chain = walker.chain(pod)
        if not _is_usable(chain, problems, wanted):
            continue
        target = finder.target(chain)
        if isinstance(target, WantedObject):
            wanted.add(target)
        else:
            found.setdefault(target.key, []).append((target, chain))
    groups = [
        group
        for _, members in sorted(found.items(), key=lambda item: item[0])
        for group in assemble(members, around, problems)
    ]
    return GroupPlan(tuple(groups), tuple(sorted(problems)), tuple(sorted(wanted)))


def _is_usable(chain: Chain, problems: set[Problem], wanted: set[WantedObject]) -> bool:
    """Return whether the pod of `chain` can be grouped now."""
    if settings.is_skipped(chain.links[0]):
        return False
    above = chain.missing
    if above is None:
        return True
    if not chain.unreadable:
        wanted.add(
            WantedObject(above.group, above.kind, chain.pod.namespace, above.name, above.uid)
        )
        return False
    message = (
        f"the owner {above} cannot be read: {chain.unreadable}. Pods that it controls itself are "
        "one group with minimum 1, and workloads below it are groups of their own"
    )
    problems.add(Problem(above, ProblemReason.OWNER_NOT_READABLE, message))
    return True
