"""The binder plugin numa: pods with predicted zones are bound to a node in the plan's order."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from itertools import count
from random import Random
from typing import cast

import pytest

from bindery.binder.outcome.bindingmetadata import BindingMetadata
from bindery.binder.outcome.outcome import Outcome, Verdict
from bindery.binder.outcome.ports import PodView
from bindery.binder.plugins.chain import PluginChain
from bindery.binder.plugins.interface import BindContext, BinderPlugin, PluginError
from bindery.binder.plugins.numa import Numa
from bindery.binder.run.transaction import BindTransaction
from bindery.kube.client import Client
from bindery.kube.errors import ServerError
from bindery.kube.objects.bindrequests import (
    CommittedStatement,
    PodBinding,
    StatementSpec,
)
from tests.binder.quicktime import play

_NUMBERS = count(1)


class SlowPort:
    """Pods and nodes; each binding takes a while, and no two take the same time."""

    def __init__(self, random: Random, refused: Sequence[str] = ()) -> None:
        self.random, self.refused = random, refused
        self.bound: defaultdict[str, list[str]] = defaultdict(list)
        """Node -> pods in the order in which it got them."""

    async def find_pod(self, namespace: str, name: str, uid: str) -> PodView | None:
        await asyncio.sleep(self.random.random() / 100)
        nodes = [node for node, names in self.bound.items() if name in names]
        return PodView(namespace, name, uid, node=nodes[0] if nodes else "", ending=False)

    async def read_pod(self, namespace: str, name: str) -> PodView | None:
        return await self.find_pod(namespace, name, name)

    async def void_bindings(self, namespace: str, name: str, uid: str) -> PodView | None:
        return await self.find_pod(namespace, name, uid)

    async def left_writes_ended(self) -> None: ...

    async def node_exists(self, name: str) -> bool:
        return bool(name)

    async def bind(
        self,
        pod: PodView,
        node: str,
        metadata: BindingMetadata,  # noqa: ARG002
        *,
        version: str,  # noqa: ARG002
        priority: int = 0,  # noqa: ARG002
    ) -> None:
        await asyncio.sleep(self.random.random() / 10)
        if pod.name in self.refused:
            raise ServerError(500, "InternalError", "trouble")
        self.bound[node].append(pod.name)


class Doubter:
    """A plugin that confirms no pod of some names."""

    name = "doubter"

    def __init__(self, *names: str) -> None:
        self.names = names

    async def pre_bind(self, context: BindContext) -> None:
        pass

    async def confirm(self, context: BindContext) -> None:
        if context.pod.name in self.names:
            raise PluginError("no")


def planned(name: str, node: str) -> PodBinding:
    """Return a binding with a prediction that comes after all earlier ones."""
    data = {"numa": {"zones": [0], "held": {"0": {"cpu": 1}}, "order": next(_NUMBERS)}}
    return PodBinding(pod_name=name, pod_uid=name, selected_node=node, plugin_data=data)


def alone(binding: PodBinding) -> BindContext:
    """Return the context of a pod in a Statement of its own."""
    spec = StatementSpec(pods=[binding], id=binding.pod_name)
    pod = PodView("team", binding.pod_name, binding.pod_uid, node="", ending=False)
    client = cast("Client", None)  # no step calls the API
    return BindContext(
        client, pod, CommittedStatement(spec=spec), binding, binding.plugin_data["numa"]
    )


async def carried_out(
    port: SlowPort, *statements: Sequence[PodBinding], doubter: Doubter | None = None
) -> list[Outcome]:
    plugins: tuple[BinderPlugin, ...] = (Numa(), *([doubter] if doubter else []))
    chain = PluginChain(
        plugins, lambda _namespace, _priority: cast("Client", None), lambda *_measured: None
    )
    runs = []
    for number, pods in enumerate(statements):
        spec = StatementSpec(id=f"s-{number}", pods=list(pods), min_bound=0)
        transaction = BindTransaction(
            [CommittedStatement(spec=spec)], port, chain, fence=lambda: None, adopted=False
        )
        runs.append(transaction.attempt(last=True))
    return list(await asyncio.gather(*runs))


@pytest.mark.parametrize("seed", range(5))
def test_each_node_gets_the_pods_of_a_statement_in_the_order_of_the_plan(seed: int) -> None:
    random, port = Random(seed), SlowPort(Random(seed))
    names = (f"pod-{number}" for number in count())
    statements = [
        [planned(next(names), random.choice("ab")) for _ in range(random.randint(1, 6))]
        for _ in range(4)
    ]

    async def test() -> None:
        outcomes = await carried_out(port, *statements)
        assert all(outcome.verdict is Verdict.SUCCEEDED for outcome in outcomes)

    play(test())

    for node, bound in port.bound.items():
        for pods in statements:
            expected = [pod.pod_name for pod in pods if pod.selected_node == node]
            assert [name for name in bound if name in expected] == expected


def test_a_pod_waits_for_earlier_ready_pods_of_other_statements() -> None:
    early, late = planned("early", "n"), planned("late", "n")
    plugin, turns = Numa(), list[str]()

    async def bind(context: BindContext) -> None:
        await plugin.before_bind(context)
        await asyncio.sleep(0.1)
        turns.append(context.pod.name)
        plugin.end_turn(context)

    async def test() -> None:
        contexts = [alone(late), alone(early)]
        for context in contexts:
            await plugin.confirm(context)
        await asyncio.gather(*map(bind, contexts))

    play(test())

    assert turns == ["early", "late"]


def test_a_pod_that_is_not_bound_does_not_delay_others() -> None:
    refused, doubted, last = (planned(name, "n") for name in ("refused", "doubted", "last"))
    port = SlowPort(Random(1), refused=["refused"])

    async def test() -> None:
        await carried_out(port, [refused, doubted, last], doubter=Doubter("doubted"))
        assert asyncio.get_running_loop().time() < 1

    play(test())

    assert port.bound["n"] == ["last"]


def test_a_pod_waits_for_a_limited_time() -> None:
    plugin, early, late = Numa(), alone(planned("early", "n")), alone(planned("late", "n"))

    async def test() -> None:
        await plugin.confirm(early)
        await plugin.confirm(late)
        await plugin.before_bind(late)
        assert 0 < asyncio.get_running_loop().time() < 10

    play(test())


def test_a_rolled_back_pod_leaves_the_order() -> None:
    plugin, early, late = Numa(), alone(planned("early", "n")), alone(planned("late", "n"))

    async def test() -> None:
        await plugin.confirm(early)
        await plugin.confirm(late)
        await plugin.rollback(early)
        await plugin.before_bind(late)
        assert asyncio.get_running_loop().time() == 0

    play(test())
