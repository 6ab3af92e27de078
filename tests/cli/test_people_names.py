"""Gangs in answers have the names of their workloads."""

import pytest

from bindery.api.names import MADE_BY_GROUPER, MADE_BY_LABEL
from bindery.cli.text.peoplenames import PeopleNames
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.watched import Meta, OwnerReference


def group(name: str, owner: str, uid: str = "", made_by: str = MADE_BY_GROUPER) -> PodGroup:
    references = [OwnerReference(kind="Job", name=owner, uid=uid)] if owner else []
    labels = {MADE_BY_LABEL: made_by} if made_by else {}
    meta = Meta(name=name, namespace="team", labels=labels, owner_references=references)
    return PodGroup(metadata=meta)


GROUPS = [
    group("job-vis0-f3ba2458", "vis0", "f3ba2458-2f6c-4bd0"),
    group("job-set-11111111", "set", "11111111-2f6c-4bd0"),
    group("job-set-11111111-0a1b2c3d", "set", "11111111-2f6c-4bd0"),
    group("written", "mine", made_by=""),
]


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (
            "before it come team/job-vis0-f3ba2458, team/b and 3 more.",
            "before it come Job team/vis0, team/b and 3 more.",
        ),
        ("  team/job-vis0-f3ba2458 (queue a)", "  Job team/vis0 (queue a)"),
        ("team/job-vis0-f3ba2458: Unschedulable", "Job team/vis0: Unschedulable"),
        ("PodGroup team/job-vis0-f3ba2458 (queue a)", "PodGroup team/job-vis0-f3ba2458 (queue a)"),
        ("reclaim: team/job-vis0-f3ba2458-0 leaves", "reclaim: team/job-vis0-f3ba2458-0 leaves"),
        ("  team/job-set-11111111", "  Job team/set"),
        ("  team/job-set-11111111-0a1b2c3d", "  team/job-set-11111111-0a1b2c3d"),
        ("  team/written", "  team/written"),
        ("other/job-vis0-f3ba2458", "other/job-vis0-f3ba2458"),
    ],
)
def test_a_gang_of_the_grouper_is_shown_with_the_name_of_its_workload(
    line: str, shown: str
) -> None:
    assert list(PeopleNames(GROUPS).lines([line])) == [shown]
