"""All four processes in one thread: on a virtual clock, from one seed, without sockets or signals.

Each is made as its entry makes it, with other arguments.
"""

import asyncio
import os
import random
import secrets
import sys
import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from random import Random
from types import FrameType
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from bindery.api.configuration import BinderConfiguration, GrouperConfiguration
from bindery.binder import process as binder
from bindery.binder.plugins import registry
from bindery.binder.requestevents import translate
from bindery.binder.statements.intake import Intake
from bindery.binder.stopping import Stop
from bindery.grouper import process as grouper
from bindery.grouper.table.loading import load
from bindery.kube.client import Client, Selection
from bindery.kube.environment import Environment
from bindery.kube.errors import KubeError
from bindery.kube.objects.resources import BIND_REQUESTS, LEASES, PODS, RAW_PAGES
from bindery.nodeagent.agent import HollowAgent
from bindery.nodeagent.shapes import NodeShape, expand
from bindery.observability.listening import NOWHERE
from bindery.scheduler import process as scheduler
from bindery.scheduler.configuration import ConfigurationFile
from tests.binder.quicktime import play
from tests.histories.shelf import Shelf, ShelfCarrier
from tests.histories.steppedcycles import SteppedCycles

BEGIN_S = 2_000_000_000.0
LASTS_S = 60.0
MACHINE = (
    *(time.time, time.time_ns, time.monotonic, time.perf_counter, time.process_time),
    *(time.thread_time, time.sleep, random.random, os.urandom),
)
OURS = ("bindery", "random", "uuid")
COUNT = 3


@dataclass(eq=False)
class Requests:
    """Events of BindRequests from a watch of the binder's own client."""

    client: Client
    intake: Intake
    is_alive: bool = False

    async def run(self) -> None:
        """Watch until cancelled."""
        found, version = await self.client.list_with_version(
            BIND_REQUESTS, RAW_PAGES.decode, Selection()
        )
        self.is_alive = True
        for raw in found:
            translate(None, msgspec.json.decode(raw), self.intake)
        while True:
            watch = self.client.watch(
                BIND_REQUESTS, Selection(), resource_version=version, timeout_s=300, idle_s=60.0
            )
            try:
                async with aclosing(watch) as lines:
                    async for line in lines:
                        event = msgspec.json.decode(line)
                        version = event["object"]["metadata"]["resourceVersion"]
                        translate(event["type"], event["object"], self.intake)
            except KubeError:
                continue


class System:
    """Two schedulers, a binder, the grouper and the hollow agent on one shelf."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.shelf = Shelf()

    def client(self, process: str) -> Client:
        """Return the client of a process, with the clock of the loop and a chance of its own."""
        loop = asyncio.get_running_loop()
        chance = Random(f"{self.seed} {process}")
        environment = Environment(lambda: BEGIN_S + loop.time(), chance)
        return Client(ShelfCarrier(self.shelf), 30.0, environment)

    async def schedule(self, name: str) -> None:
        """Run a scheduler."""
        client = self.client(name)
        runner = SteppedCycles(lambda: client.environment.random.uniform(0.0, 0.001))
        options = scheduler.SchedulerOptions(ConfigurationFile(None), None, name, NOWHERE)
        await scheduler.Scheduler(options, client, runner, CollectorRegistry()).run()

    async def bind(self, name: str) -> None:
        """Run a binder."""
        client, configuration = self.client(name), BinderConfiguration()
        plugins = registry.build(configuration.plugins)
        options = binder.Options(configuration, plugins, None, name, NOWHERE)
        await binder.Binder(options, client, Stop(), lambda intake: Requests(client, intake)).run()

    async def group(self, name: str) -> None:
        """Run a grouper."""
        options = grouper.GrouperOptions(GrouperConfiguration(), load(), None, name, NOWHERE)
        await grouper.Grouper(options, self.client(name)).run()

    async def keep_nodes(self, name: str) -> None:
        """Run a hollow agent."""
        nodes = expand((NodeShape(count=2),))
        await HollowAgent(self.client(name), nodes).run(asyncio.Event())

    async def play(self) -> None:
        """Let the pods come, and everything run for a while."""
        for number in range(COUNT):
            self.shelf.put(PODS.path("team", f"p{number}"), pod(f"p{number}"), "ADDED")
        processes = (
            self.schedule("scheduler-1"), self.schedule("scheduler-2"), self.bind("binder-1"),
            self.group("grouper-1"), self.keep_nodes("agent"),
        )  # fmt: skip
        running = [asyncio.create_task(each) for each in processes]
        await asyncio.wait(running, timeout=LASTS_S)
        for task in running:
            task.cancel()
        ended = await asyncio.gather(*running, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in ended), ended


def pod(name: str) -> dict[str, object]:
    container = {"name": "main", "image": "i", "resources": {"requests": {"nvidia.com/gpu": "1"}}}
    return {
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"schedulerName": "bindery", "containers": [container]},
        "status": {"phase": "Pending"},
    }


def history(seed: int) -> Shelf:
    system = System(seed)
    play(system.play())
    return system.shelf


def test_pods_are_planned_bound_and_run_on_a_virtual_clock() -> None:
    shelf = history(1)

    pods = shelf.listed(PODS.path())
    assert [each["status"]["phase"] for each in pods] == ["Running"] * COUNT
    assert all(each["spec"]["nodeName"].startswith("hollow-") for each in pods)
    leases = {lease["metadata"]["name"] for lease in shelf.listed(LEASES.path())}
    assert leases >= {"bindery-scheduler", "bindery-binder", "bindery-grouper"}
    assert shelf.calls[-1][0] > LASTS_S - 30.0


def test_one_seed_is_one_history() -> None:
    one, same, other = history(1).calls, history(1).calls, history(2).calls

    assert one == same
    assert one != other


def test_no_clock_and_no_chance_of_the_machine_is_read() -> None:
    read = {each for each in machine_reads(lambda: history(1)) if each[0].startswith(OURS)}

    measure = {"bindery.scheduler.engine", "bindery.scheduler.plugins.registry"}
    assert read == {(module, "perf_counter") for module in measure}


def test_a_read_of_the_machine_is_seen() -> None:
    assert machine_reads(lambda: (time.monotonic(), random.random(), secrets.token_hex())) == {
        (__name__, "monotonic"),
        (__name__, "random"),
        ("random", "urandom"),
    }


def machine_reads(work: Callable[[], object]) -> set[tuple[str, str]]:
    """Return which modules call which function of `MACHINE` during `work`."""
    read = set()

    def see(frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and any(called is each for each in MACHINE):
            read.add((frame.f_globals["__name__"], called.__name__))

    sys.setprofile(see)
    try:
        work()
    finally:
        sys.setprofile(None)
    return read
