"""The product's processes, made from what a history gives them: each is a coroutine to run."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing, suppress
from functools import cache
from random import Random
from typing import Any, Final

import msgspec
from prometheus_client import CollectorRegistry

from bindery.api.configuration import (
    BinderConfiguration,
    BindRequestConfiguration,
    GrouperConfiguration,
    GrouperExpectation,
    LeaderElection,
    PluginConfiguration,
    SchedulerConfiguration,
)
from bindery.binder import process as binder
from bindery.binder.plugins import registry
from bindery.binder.requestevents import RequestSource, translate
from bindery.binder.statements.intake import Intake
from bindery.binder.stopping import Stop
from bindery.grouper import process as grouper
from bindery.grouper.table import loading
from bindery.kube.client import Client
from bindery.kube.environment import Environment
from bindery.kube.errors import KubeError
from bindery.kube.http.carrier import Carrier
from bindery.kube.http.requests import JSON, ApiRequest
from bindery.kube.http.retry import Repeat
from bindery.kube.objects.resources import BIND_REQUESTS
from bindery.nodeagent.agent import HollowAgent
from bindery.nodeagent.shapes import NodeShape, expand
from bindery.observability.listening import NOWHERE
from bindery.scheduler import process as scheduler
from bindery.scheduler.configuration import ConfigurationFile
from tests.histories.plan import NODE_PREFIX, Plan
from tests.histories.steppedcycles import SteppedCycles

_LEASES: Final = LeaderElection(lease_seconds=15, renew_deadline_seconds=10, retry_seconds=4)
"""The chart's, but for the time between renewals: with its two seconds, half of all calls are for
Leases, and a leader that loses calls hardly ever loses its Lease."""
_CALL_S: Final = 30.0
_KOPF_RESTART_S: Final = 1.0
_CYCLES_S: Final = (5.0, 10.0, 20.0)
"""Time between cycles while nothing changes; each scheduler draws its own. With the second of the
chart, two of three cycles would be without a change, and a history would take longer by a third."""

Main = Callable[[Carrier, Environment, Plan, str, Stop], Coroutine[Any, Any, None]]
"""Runs a process: its way to the API server, its clock and chance, the plan, its identity, and its
stop. All but the binder end when they are cancelled, as their commands let SIGTERM do.
"""


async def run_scheduler(
    carrier: Carrier, environment: Environment, plan: Plan, identity: str, stop: Stop
) -> None:
    """Run one scheduler."""
    del stop
    file = ConfigurationFile(None)
    cycle_s = environment.random.choice(_CYCLES_S)
    file.current = scheduler_configuration(
        cycle_s, BindRequestConfiguration(max_pods=plan.max_pods, backoff_limit=plan.backoff_limit)
    )
    options = scheduler.SchedulerOptions(file, None, identity, NOWHERE)
    client = Client(carrier, _CALL_S, environment)
    runner = SteppedCycles(lambda: _work_s(environment.random))
    await scheduler.Scheduler(options, client, runner, CollectorRegistry()).run()


async def run_binder(
    carrier: Carrier, environment: Environment, plan: Plan, identity: str, stop: Stop
) -> None:
    """Run one binder."""
    configuration = _binder_configuration(plan)
    options = binder.Options(
        configuration, registry.build(configuration.plugins), None, identity, NOWHERE
    )
    client = Client(carrier, _CALL_S, environment)

    def source(intake: Intake) -> RequestSource:
        return EventSource(carrier, intake)

    await binder.Binder(options, client, stop, source).run()


async def run_grouper(
    carrier: Carrier, environment: Environment, plan: Plan, identity: str, stop: Stop
) -> None:
    """Run one grouper."""
    del plan, stop
    # Without HyperNodes from labels: the worlds have none, and their watches would cost time.
    configuration = GrouperConfiguration(leader_election=_LEASES, hyper_node_levels=())
    options = grouper.GrouperOptions(configuration, _table(), None, identity, NOWHERE)
    await grouper.Grouper(options, Client(carrier, _CALL_S, environment)).run()


async def run_agent(
    carrier: Carrier, environment: Environment, plan: Plan, identity: str, stop: Stop
) -> None:
    """Run the agent of all hollow nodes."""
    del identity, stop
    shape = NodeShape(
        count=plan.nodes, name_prefix=NODE_PREFIX, cpu=str(plan.cores), memory="64Gi",
        gpus=plan.gpus, racks=plan.ground.racks, zones=0,
    )  # fmt: skip
    agent = HollowAgent(Client(carrier, _CALL_S, environment), expand((shape,)))
    await agent.run(asyncio.Event())


MAINS: Final[dict[str, Main]] = {
    "scheduler": run_scheduler,
    "binder": run_binder,
    "grouper": run_grouper,
    "agent": run_agent,
}


@cache
def _table() -> loading.Table:
    return loading.load()


def scheduler_configuration(
    cycle_s: float, requests: BindRequestConfiguration | None = None
) -> SchedulerConfiguration:
    """Return the configuration of the schedulers: the chart's, where it runs a grouper."""
    expectation = GrouperExpectation(wait_for_groups=True)
    return SchedulerConfiguration(
        leader_election=_LEASES,
        grouper=expectation,
        cycle_seconds=cycle_s,
        bind_request=requests or BindRequestConfiguration(),
    )


def _binder_configuration(plan: Plan) -> BinderConfiguration:
    cards = PluginConfiguration(name="hami", arguments={"expireSeconds": 30, "stallSeconds": 20})
    return BinderConfiguration(
        plugins=(
            PluginConfiguration(name="volumes", arguments={"bindTimeoutSeconds": 20}),
            PluginConfiguration(name="dra"),
            PluginConfiguration(name="gpusharing", arguments={"deadlineSeconds": 6}),
            *((cards,) if plan.ground.card_nodes else ()),
        ),
        time_to_live_seconds=5.0,
        max_backoff_seconds=2.0,
        leader_election=_LEASES,
    )


def _work_s(chance: Random) -> float:
    """Draw how long a cycle works between two looks at a clock."""
    return chance.uniform(0.0, 0.3) if chance.random() < 0.02 else 0.0005


class EventSource:
    """What kopf does for the binder: it lists, watches, and lists again when its watch ends."""

    def __init__(self, carrier: Carrier, intake: Intake) -> None:
        self._carrier, self._intake = carrier, intake
        self.is_alive = False

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            self.is_alive = True
            with suppress(KubeError, msgspec.DecodeError):  # kopf ends, and is started again
                await self._watch(await self._list())
            self.is_alive = False
            await asyncio.sleep(_KOPF_RESTART_S)

    async def _list(self) -> str:
        path = BIND_REQUESTS.path("")
        answer = await self._carrier.send(_read("list", path), _CALL_S)
        page = msgspec.json.decode(answer.body)
        for item in page["items"]:
            translate(None, item, self._intake)
        version: str = page["metadata"]["resourceVersion"]
        return version

    async def _watch(self, version: str) -> None:
        target = f"{BIND_REQUESTS.path('')}?watch=true&resourceVersion={version}"
        lines: AsyncGenerator[bytes, None] = self._carrier.stream(_read("watch", target), 600.0)
        async with aclosing(lines):
            async for line in lines:
                event = msgspec.json.decode(line)
                if event["type"] == "ERROR":
                    return
                translate(event["type"], event["object"], self._intake)


def _read(verb: str, target: str) -> ApiRequest:
    return ApiRequest(verb, "GET", BIND_REQUESTS.plural, target, Repeat.ALWAYS, JSON)
