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
from bindery.grouper.table.groups import GroupPlan, ProblemReason, WantedObject
from bindery.grouper.table.loading import Table
from bindery.grouper.table.steps import Notes, Step
from bindery.grouper.table.targets import Finder, Target
from bindery.grouper.table.walk import Chain, Owners


def plan(
    owners: Mapping[str, KubeObject],
    pods: Iterable[PodFacts],
    table: Table,
    surroundings: Surroundings | None = None,
) -> GroupPlan:
    """Return the PodGroups of `pods`, all of one namespace.

    `owners`: by UID, the objects that the chains of the pods lead through, and the objects that an
    earlier plan wanted. Pods that name their PodGroup themselves, in our annotation or in
    `spec.schedulingGroup`, are in no group of the plan.
    """
    around = surroundings or Surroundings()
    by_uid = {pod.uid: pod for pod in pods}
    finder = Finder(table, Owners(owners, by_uid, around.unreadable))
    notes = Notes()
    wanted: set[WantedObject] = set()
    found: dict[tuple[str, str], list[tuple[Target, Chain]]] = {}
    for pod in sorted(by_uid.values(), key=lambda each: (each.created, each.name, each.uid)):
        if pod.scheduling_group or names.POD_GROUP_ANNOTATION in pod.annotations:
            continue
        chain = finder.owners.chain(pod)
        if settings.is_skipped(chain.links[0]):
            continue
        target = notes.take(_target(finder, chain))
        if isinstance(target, WantedObject):
            wanted.add(target)
        else:
            found.setdefault(target.key, []).append((target, chain))
    groups = [
        group
        for _, members in sorted(found.items(), key=lambda item: item[0])
        for group in notes.take(assemble(members, around))
    ]
    return GroupPlan(tuple(groups), tuple(sorted(notes.problems)), tuple(sorted(wanted)))


def _target(finder: Finder, chain: Chain) -> Step[Target | WantedObject]:
    """Return the target of the pod of `chain`, or the object that must be read first."""
    above = chain.missing
    if above is not None and not chain.unreadable:
        namespace = chain.pod.namespace
        return Step(WantedObject(above.group, above.kind, namespace, above.name, above.uid))
    notes = Notes()
    if above is not None:
        message = (
            f"the owner {above} cannot be read: {chain.unreadable}. Pods that it controls itself "
            "are one group with minimum 1, and workloads below it are groups of their own"
        )
        notes.add(above, ProblemReason.OWNER_NOT_READABLE, message)
    return notes.step(notes.take(finder.target(chain)))
