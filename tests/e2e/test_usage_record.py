"""The ConfigMap with the record of past usage, and its overwriting, on the real API server."""

import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass

import numpy as np
import pytest

from bindery.kube.client import Client
from bindery.kube.errors import NotFoundError
from bindery.kube.lease import Leadership
from bindery.kube.objects.resources import CONFIG_MAPS
from bindery.scheduler.records.store import RecordStore
from bindery.scheduler.usage.codec import decode
from bindery.scheduler.usage.formula import Decay, Moment
from bindery.scheduler.usage.keeper import UsageProblems
from bindery.scheduler.usage.place import KEY
from bindery.scheduler.usage.record import UsageRecord
from bindery.scheduler.usage.recordkeeper import UsageRecordKeeper
from devcluster.install import Installation

pytestmark = pytest.mark.e2e

START = 1_750_000_000.0
NEVER_S = 3600.0
"""Between two writes: only the last one of a term is made."""


class Heard(UsageProblems):
    """Remembers what was complained of."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def error(self, _operation: str, reason: str, _problem: str) -> None:
        self.reasons.append(reason)

    def warning(self, reason: str, _problem: str) -> None:
        self.reasons.append(reason)


@dataclass
class Scheduler:
    """As much of a scheduler as keeps the record."""

    client: Client
    namespace: str
    name: str
    term: int

    def __post_init__(self) -> None:
        self.heard = Heard()
        self.record = UsageRecord(Decay(10 * 3600))
        store = RecordStore(self.client, self.name, self.namespace, KEY)
        self.keeper = UsageRecordKeeper(self.record, store, self.heard, lambda: START, NEVER_S)
        self.leadership = Leadership(self.term, lambda: 0.0, 1.0)

    def see(self, at: float, held: float) -> float:
        """Account a queue that holds `held` of 8 GPUs at `at`; return its usage."""
        moment = Moment(START + at, ["a"], ["gpu"], np.array([[held]]), np.array([8.0]))
        return float(self.record.account(moment)[0, 0])


@pytest.fixture
async def client(installation: Installation) -> AsyncIterator[Client]:
    kubeconfig = installation.control_plane.admin_kubeconfig
    async with Client.connect(kubeconfig, user_agent="bindery-test/0") as made:
        yield made


@pytest.fixture
def name() -> str:
    return f"usage-{secrets.token_hex(4)}"


async def text(client: Client, namespace: str, name: str) -> str:
    found = await client.get(CONFIG_MAPS, name, namespace)
    return (found.data or {})[KEY]


async def test_the_next_leader_continues_the_record_of_the_last_one(
    client: Client, namespace: str, name: str
) -> None:
    first, second = (Scheduler(client, namespace, name, term) for term in (1, 2))
    async with first.keeper.kept(first.leadership):
        first.see(0, 8)
        first.see(600, 8)

    async with second.keeper.kept(second.leadership):
        second.see(700, 0)
        usage = second.see(1300, 0)

    assert usage == 0.5
    assert decode(await text(client, namespace, name))[1] == 2


async def test_a_leader_of_an_earlier_term_does_not_overwrite_a_later_one(
    client: Client, namespace: str, name: str
) -> None:
    late, next_one = (Scheduler(client, namespace, name, term) for term in (1, 2))
    async with late.keeper.kept(late.leadership):
        late.see(0, 8)
        late.see(600, 8)
        async with next_one.keeper.kept(next_one.leadership):
            next_one.see(0, 2)
            next_one.see(600, 2)

    history, term = decode(await text(client, namespace, name))
    assert term == 2
    assert history.parts(Decay(3600), START + 600).tolist() == [[0.25]]


async def test_changes_of_other_clients_to_the_configmap_are_overwritten(
    client: Client, namespace: str, name: str
) -> None:
    scheduler = Scheduler(client, namespace, name, 1)
    await client.create(CONFIG_MAPS, {"metadata": {"name": name}}, namespace)
    async with scheduler.keeper.kept(scheduler.leadership):
        scheduler.see(0, 8)
        scheduler.see(600, 8)
        await client.patch(CONFIG_MAPS, name, {"data": {KEY: "scribble"}}, namespace=namespace)

    assert decode(await text(client, namespace, name))[1] == 1
    assert scheduler.heard.reasons == []


async def test_an_unreadable_record_is_not_overwritten(
    installation: Installation, client: Client, namespace: str, name: str
) -> None:
    first = Scheduler(client, namespace, name, 1)
    async with first.keeper.kept(first.leadership):
        first.see(0, 8)
        first.see(600, 8)
    before = await text(client, namespace, name)
    kubeconfig = installation.kubeconfigs["nodeagent"]  # which may read no ConfigMaps

    async with Client.connect(kubeconfig, user_agent="bindery-test/0") as powerless:
        second = Scheduler(powerless, namespace, name, 2)
        async with second.keeper.kept(second.leadership):
            second.see(700, 0)
            second.see(1300, 0)

    assert second.heard.reasons == ["UsageNotRead"]
    assert await text(client, namespace, name) == before


async def test_a_scheduler_that_lost_the_lease_writes_nothing(
    client: Client, namespace: str, name: str
) -> None:
    scheduler = Scheduler(client, namespace, name, 1)
    deposed = Leadership(1, lambda: 2.0, 1.0)

    async with scheduler.keeper.kept(deposed):
        scheduler.see(0, 8)
        scheduler.see(600, 8)

    with pytest.raises(NotFoundError):
        await client.get(CONFIG_MAPS, name, namespace)
