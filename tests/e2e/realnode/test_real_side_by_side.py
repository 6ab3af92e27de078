"""The agent treats each pod of the table as a kubelet does.

All pods go to a kubelet and to the agent, with the same settings and plugins. Compared are their
phases and whole status, and of running pods: the order of starts, cgroups, PodResources' answers,
and the files below the kubelet's directory. In the end, nothing is left of them.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Mapping

import pytest

from devcluster.realnode import agentnode
from devcluster.realnode.cluster import RealCluster
from devcluster.realnode.node import RealNode
from tests.administrator import Administrator
from tests.e2e.realnode import agentstorage, sidebyside, strictnode, volumecases
from tests.e2e.realnode.nodecases import ALONE, TOGETHER
from tests.e2e.realnode.nodeextras import corner
from tests.e2e.realnode.nodepods import Case
from tests.e2e.realnode.sidebyside import Comparison
from tests.sizes import IS_LONG

pytestmark = [pytest.mark.e2e, pytest.mark.long("all pods of the table, a quarter of an hour")]

_NUMBER = 4
_SERVICES = {**strictnode.SERVICES, "driver": agentstorage.service()}
_SETTINGS = {
    name: value for name, value in strictnode.KUBELET.items() if name != "registerWithTaints"
}


def named(table: Mapping[str, Mapping[str, Case]]) -> dict[str, Case]:
    """Return the cases of a table by their group and name."""
    return {
        f"{group}: {name}": case for group, cases in table.items() for name, case in cases.items()
    }


_TABLES = ((TOGETHER, False), (volumecases.table(), False), (ALONE, True))
"""The cases, and whether each has its node alone."""
CASES = {name: case for table, _ in _TABLES for name, case in named(table).items()}


@pytest.fixture(scope="module")
def agent(cluster: RealCluster) -> Iterator[RealNode]:
    # The kubelet of the tests has no domain.
    options = ["--cluster-domain="]
    options += [f"--set=kubelet.{name}={json.dumps(value)}" for name, value in _SETTINGS.items()]
    with agentnode.added(cluster, _NUMBER, *options, services=_SERVICES) as node:
        yield node


@pytest.fixture(scope="module")
def comparison(
    agent: RealNode,
    administrator: Administrator,
    cluster: RealCluster,
    request: pytest.FixtureRequest,
) -> Iterator[Comparison]:
    """The cases that were chosen for this run."""
    items = [item for item in request.session.items if isinstance(item, pytest.Function)]
    chosen = {
        item.callspec.params["case"]
        for item in items
        if item.module is request.module and hasattr(item, "callspec")
    }
    tables = [
        ({name: case for name, case in named(table).items() if name in chosen}, alone)
        for table, alone in _TABLES
    ]
    with (
        strictnode.added(cluster, _SERVICES) as kubelet,
        corner(administrator, cluster) as place,
        volumecases.stored(cluster, place, (kubelet, agent)),
    ):
        found = Comparison(cluster, place, (kubelet, agent))
        asyncio.run(found.play(tables))
        yield found


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("case", CASES if IS_LONG else [next(iter(CASES))])
def test_the_agent_treats_each_pod_as_a_kubelet_does(comparison: Comparison, case: str) -> None:
    assert sidebyside.undeclared(case, comparison.pairs[case]) == []


def test_each_declared_difference_is_there(comparison: Comparison) -> None:
    """The figures are those of docs/node-agent.md."""
    pairs = comparison.pairs.values()
    facts = Counter(
        path.partition("/")[0] for pair in pairs for seen in pair.agent.seen for path in seen
    )
    print(f"{sum(len(pair.agent.histories) for pair in pairs)} pods, facts: {dict(facts)}")
    for case, pair in comparison.pairs.items():
        for difference in pair.differing():
            print(case, *difference, sep=" | ")

    assert sidebyside.unseen(comparison.pairs) == []


def test_nothing_is_left_of_the_pods(comparison: Comparison) -> None:
    assert comparison.left == []
