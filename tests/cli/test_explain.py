"""`bindery explain`: what it says, over clusters that scenarios describe."""

import pytest
from looks import scenario_of, source_of

from bindery.cli.errors import CommandError
from bindery.cli.explain import describe
from bindery.cli.subjects import subject
from bindery.scenario.format import Scenario

CLUSTER = """
nodes:
- {name: small, gpus: 2}
- {name: big, gpus: 8, taints: [{key: team, value: red, effect: NoSchedule}]}
- {name: down, gpus: 8, ready: false}
queues:
- {name: q0, gpu: {limit: 3}}
jobs:
- {name: huge, pods: [{count: 3, gpus: 1}]}
- {name: over, queue: q0, pods: [{count: 4, gpus: 1}]}
- {name: lost, queue: nowhere, pods: [{gpus: 1}]}
- {name: few, minMember: 3, pods: [{gpus: 1}]}
- {name: fits, pods: [{cpu: "1"}]}
- {name: runs, pods: [{cpu: "1", state: Running, node: small}]}
- {name: going, pods: [{cpu: "1"}]}
bindRequests:
- {pods: [going-0], node: small}
"""


@pytest.fixture(scope="module")
def cluster() -> Scenario:
    return scenario_of(CLUSTER)


def explained(cluster: Scenario, name: str) -> str:
    source = source_of(cluster)
    about = subject(source.look, name, "default")
    return "\n".join(describe(source, about, cluster.now))


def test_a_gang_that_does_not_fit_hears_what_every_node_says(cluster: Scenario) -> None:
    group, gate, nodes, first, second, *_, advice = explained(cluster, "huge").splitlines()
    against = [first, second]

    assert group == (
        "PodGroup default/huge (queue default, 7s old): "
        "0 of 3 pods are bound, at least 3 are needed."
    )
    assert gate.startswith("Held by: Unschedulable: 2 of 3 pods fit; for the next one 0/3 nodes")
    assert nodes == "Nodes that would take one of its 3 equal pods that wait (1 gpu): 1 of 3"
    assert [line.split()[0] for line in against] == ["1", "1"]
    assert any("not ready" in line for line in against)
    assert any("untolerated taint" in line for line in against)
    assert advice.startswith("What to do: Free or add nodes")


@pytest.mark.parametrize(
    ("name", "gate", "advice"),
    [
        ("over", "OverLimit: queue q0 holds 0 of its limit of 3", "raise the limit"),
        ("lost", "QueueDoesNotExist: queue nowhere does not exist", "Create the queue"),
        ("few", "NotEnoughPods: 1 of the 3 pods it needs have come", "lower spec.minMember"),
    ],
)
def test_the_gate_that_holds_a_gang_comes_with_what_to_do(
    cluster: Scenario, name: str, gate: str, advice: str
) -> None:
    answer = explained(cluster, name)

    assert f"Held by: {gate}" in answer
    assert advice in answer.splitlines()[-1]


def test_a_pod_is_explained_with_its_gang(cluster: Scenario) -> None:
    answer = explained(cluster, "pod/over-2").splitlines()

    assert answer[0] == "Pod default/over-2 waits."
    assert answer[1].startswith("PodGroup default/over ")
    assert answer[2].startswith("Held by: OverLimit")


def test_a_gang_that_fits_is_told_so(cluster: Scenario) -> None:
    assert "A cycle now would place 1 of its pods:\n  small: fits-0" in explained(cluster, "fits")


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("runs-0", "Pod default/runs-0 is bound to node small (Running)."),
        ("going-0", "Pod default/going-0 is being bound to node small by a BindRequest."),
    ],
)
def test_a_pod_that_does_not_wait_is_said_to_be_where_it_is(
    cluster: Scenario, name: str, line: str
) -> None:
    answer = explained(cluster, name).splitlines()

    assert answer[0] == line
    assert answer[-1] == "None of its pods waits for the scheduler."


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hugh", "there is no PodGroup or pod hugh in namespace default; did you mean huge"),
        ("pg/over-0", "there is no PodGroup over-0 in namespace default; did you mean over?"),
        ("queue/q0", "queue/ is not known; write pod/NAME or pg/NAME"),
    ],
)
def test_a_name_that_does_not_exist_is_answered_with_similar_ones(
    cluster: Scenario, name: str, message: str
) -> None:
    with pytest.raises(CommandError) as caught:
        explained(cluster, name)

    assert str(caught.value).startswith(message)
