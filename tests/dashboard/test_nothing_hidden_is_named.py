"""What a person may not list is not named on any page, in any form: random worlds of two teams."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bindery.answers.source import Source
from bindery.api.states import EVICTED, SCHEDULED
from bindery.dashboard.past import PastEviction, PastPlan, PastWait, QueuePoint
from bindery.dashboard.rights import ALL, Rights
from bindery.dashboard.seen import SeenHistory, reduced, shown_to
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.watched import Condition
from bindery.scenario.creation import snapshot_of
from bindery.scenario.format import Scenario
from bindery.scheduler.model.jobs import JobKey
from tests.dashboard.pictures import picture, planned, renderings, rights

HIDDEN = "zzhidden"
"""In every name of what must not be named."""
OWN = "own"
STATES = ("Pending", "Running", "Releasing")


@st.composite
def jobs(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw gangs of two tenants on common nodes and queues; of some the pods run."""
    found = []
    for index in range(draw(st.integers(2, 7))):
        is_hidden = draw(st.booleans()) if index > 1 else index == 0
        name = f"{HIDDEN}-{index}" if is_hidden else f"train-{index}"
        state = draw(st.sampled_from(STATES))
        on_node = (
            {} if state == "Pending" else {"state": state, "node": f"n{draw(st.integers(0, 2))}"}
        )
        pods = {"count": draw(st.integers(1, 3)), "gpus": draw(st.integers(1, 4)), **on_node}
        found.append(
            {
                "name": name,
                "namespace": f"{HIDDEN}-team" if is_hidden else OWN,
                "queue": draw(st.sampled_from(("a", "b", "missing"))),
                "priority": draw(st.sampled_from((10, 50, 90))),
                "labels": {"scheduling.bindery.dev/user": f"{HIDDEN}-user" if is_hidden else "me"},
                "owners": [{"kind": "Job", "name": name}],
                "runtime": "1h" if draw(st.booleans()) else None,
                "pods": [pods],
            }
        )
    return found


def world(given_jobs: list[dict[str, Any]]) -> Source:
    scenario = Scenario.model_validate(
        {
            "nodes": [
                {
                    "name": "n{i}",
                    "count": 3,
                    "gpus": 8,
                    "labels": {"topology.bindery.dev/rack": "r"},
                }
            ],
            "queues": [
                {"name": "a", "gpu": {"quota": 8, "weight": 1}, "fairUsers": {}},
                {"name": "b", "gpu": {"quota": 2, "weight": 1, "limit": 8}},
            ],
            "namespaces": {OWN: {}, f"{HIDDEN}-team": {}},
            "jobs": [{k: v for k, v in job.items() if v is not None} for job in given_jobs],
        }
    )
    source = Source(snapshot_of(scenario), scenario.config.to_configuration(), scenario.now)
    groups = tuple(map(with_conditions, source.snapshot.groups))
    return replace(source, snapshot=replace(source.snapshot, groups=groups))


def with_conditions(group: PodGroup) -> PodGroup:
    """Return `group` with conditions whose messages name objects of the other tenant."""
    texts = {
        SCHEDULED: f"it waits for {HIDDEN}-team/{HIDDEN}-0; budget {HIDDEN}-team/{HIDDEN}-pdb",
        EVICTED: f"2 pods were evicted for Job {HIDDEN}-0 in namespace {HIDDEN}-team",
    }
    if group.metadata.namespace == OWN:  # what the scheduler writes never has a bare name of others
        texts[EVICTED] = f"2 pods were evicted for {HIDDEN}-team/{HIDDEN}-0 in queue b"
    conditions = [
        Condition(type=kind, status="False", reason="Reclaim", message=text)
        for kind, text in texts.items()
    ]
    status = msgspec.structs.replace(group.status, conditions=conditions)
    return msgspec.structs.replace(group, status=status)


class Past:
    """A past in which the other tenant plays a part everywhere."""

    since: float | None = 0.0

    def __init__(self, queue: str = "b") -> None:
        self._queue = queue

    def evictions_of(self, gang: JobKey) -> list[PastEviction]:
        other = JobKey(f"{HIDDEN}-team", f"{HIDDEN}-0", True)
        return [
            PastEviction(
                1.0, 2.0, gang, "Reclaim", 2, other, self._queue, f"for {HIDDEN}-team/{HIDDEN}-0"
            )
        ]

    def waits(self, gang: JobKey) -> list[PastWait]:
        return [
            PastWait(gang, "b", 1.0, None, "Unschedulable", text, 20.0, 1)
            for text in (
                f"it waits for {HIDDEN}-team/{HIDDEN}-0 on nodes n0, n1",
                f"it waits for {HIDDEN}-te…",
            )
        ]

    def plans(self, gang: JobKey) -> list[PastPlan]:
        return [PastPlan(1.0, 2.0, gang, "Succeeded", 2, ("n0",), 9, 60.0, 1)]

    def queue_trend(self, queue: str, resource: str) -> list[QueuePoint]:  # noqa: ARG002
        return [
            QueuePoint(1.0, 2.0, 3.0, 4.0, 5.0, 1.0),
            QueuePoint(2.0, 3.0, 3.0, 4.0, 5.0, None),
        ]


@settings(max_examples=25, deadline=None)
@given(given_jobs=jobs(), queues=st.booleans(), nodes=st.booleans())
def test_no_page_names_what_a_person_may_not_list(
    given_jobs: list[dict[str, Any]], queues: bool, nodes: bool
) -> None:
    whole = planned(world(given_jobs))
    allowed = rights(OWN, queues=queues, nodes=nodes)

    past = SeenHistory(Past("b" if queues else f"{HIDDEN}-queue"), allowed)
    for title, text in renderings(shown_to(whole, allowed), past):
        assert HIDDEN not in text, title


def test_the_search_would_find_a_hidden_name() -> None:
    """The same pages for a person who may see everything name it."""
    job = {
        "name": f"{HIDDEN}-0",
        "namespace": f"{HIDDEN}-team",
        "queue": "b",
        "pods": [{"gpus": 1}],
    }
    whole = planned(world([job]))

    named = {title.partition(" ")[0] for title, text in renderings(whole) if HIDDEN in text}

    assert named >= {"gangs", "gang", "queue"}


@pytest.mark.parametrize("nodes", [True, False])
def test_without_the_right_no_node_is_named_but_those_of_own_pods(nodes: bool) -> None:
    job = {"name": "mine", "namespace": OWN, "queue": "a", "pods": [{"gpus": 8, "count": 4}]}
    other = {
        "name": "other",
        "namespace": f"{HIDDEN}-team",
        "queue": "a",
        "runtime": "1h",
        "pods": [{"gpus": 1, "state": "Running", "node": "n1"}],
    }
    seen = shown_to(planned(world([job, other])), rights(OWN, queues=True, nodes=nodes))

    assert any("n1" in text for _, text in renderings(seen)) is nodes


ONLY_OWN = rights(OWN)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("budget theirs/pdb does not allow it", "budget others does not allow it"),
        ("for own/train in queue b", "for own/train in queue b"),
        ("0/42 nodes are available", "0/42 nodes are available"),
        ("24 insufficient nvidia.com/gpu", "24 insufficient nvidia.com/gpu"),
        ("evicted for Job x in namespace theirs.", "evicted for Job x in namespace of others."),
        ("in namespace own", "in namespace own"),
        ("write queue/research", "write queue/research"),
        ("it waits for own/train and thei…", "it waits for own/train and …"),
        ("see theirs/a, theirs/b.c.", "see others, others."),
        ("reserved on nodes a1, a2 and 3 more, expected", "reserved on some nodes, expected"),
    ],
)
def test_texts_are_reduced_by_their_form(text: str, expected: str) -> None:
    assert reduced(text, ONLY_OWN) == expected


def test_a_text_does_not_tell_whether_a_name_exists() -> None:
    """Whoever names an object in a text of their own gets the same, whether it exists or not."""
    job = "{{name: {name}, namespace: theirs, pods: [{{gpus: 1}}]}}"
    with_it = picture(f"jobs: [{job.format(name='guess')}]")
    without = picture(f"jobs: [{job.format(name='another')}]")

    gangs = [shown_to(each, ONLY_OWN).gangs for each in (with_it, without)]

    assert gangs == [(), ()]
    assert reduced("theirs/guess", ONLY_OWN) == reduced("theirs/wrong", ONLY_OWN) == "others"


def test_gangs_of_others_are_counted_in_the_order_and_not_named() -> None:
    whole = picture(
        """
        nodes: [{name: n, gpus: 1}]
        queues: [{name: q, gpu: {quota: 8}}]
        jobs:
        - {name: first, namespace: theirs, queue: q, priority: 90, pods: [{gpus: 1}]}
        - {name: second, namespace: theirs, queue: q, priority: 80, pods: [{gpus: 1}]}
        - {name: third, namespace: theirs, queue: q, priority: 70, pods: [{gpus: 1}]}
        - {name: mine, namespace: own, queue: q, priority: 10, pods: [{gpus: 1}]}
        """
    )
    seen = shown_to(whole, ONLY_OWN)

    pages = dict(renderings(seen))

    assert seen.place_of[JobKey(OWN, "mine", True)] == len(seen.order)
    assert "2 gangs of others" in pages["gang own/mine html"]
    assert '"others": 2' in pages["gang own/mine json"]


def test_why_no_scheduler_leads_is_for_people_who_may_see_its_namespace() -> None:
    text = "Lease kube-system/bindery-scheduler of scheduler-x1 ended 90 s ago"
    whole = replace(picture("nodes: [{name: n}]"), absence=text, notes=(text,))

    seen = dict(renderings(shown_to(whole, ONLY_OWN)))

    assert "no scheduler leads" in seen["overview / html"]
    assert not any("scheduler-x1" in page for page in seen.values())
    assert text in dict(renderings(whole))["overview / html"]


def test_a_person_with_all_rights_gets_the_picture_itself() -> None:
    whole = picture("nodes: [{name: n}]")

    assert shown_to(whole, ALL) is whole
    assert shown_to(whole, Rights(None, queues=True, nodes=False)).nodes == ()
