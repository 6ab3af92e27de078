"""The history on a real API server: over a restart, between two leaders, and in a browser."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from bindery.api.configuration import HistoryConfiguration, LeaderElection, SchedulerConfiguration
from bindery.kube.client import Client
from bindery.kube.lease import Leadership
from bindery.kube.objects.resources import CONFIG_MAPS
from bindery.scheduler.history.codec import Past, decode
from bindery.scheduler.history.entries import Gang, HistoryEntry, HistoryKind
from bindery.scheduler.history.place import KEY, history_name
from bindery.scheduler.history.record import HistoryRecord
from bindery.scheduler.records.keeper import RecordKeeper
from bindery.scheduler.records.store import RecordStore
from devcluster import kubeconfig
from devcluster.components import Components
from devcluster.install import NAMESPACE, Installation, render
from tests.browser.visiting import Visitor, chromium
from tests.e2e import support
from tests.e2e.support import NO_ELECTION, Corner, wait_for

pytestmark = pytest.mark.e2e
RECORDS = LeaderElection().namespace
NEVER_S = 3600.0


class Problems:
    """Remembers what was reported."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def error(self, _operation: str, reason: str, _problem: str) -> None:
        self.reasons.append(reason)


class Leader:
    """As much of a scheduler as keeps the history."""

    def __init__(self, client: Client, namespace: str, term: int) -> None:
        self.problems = Problems()
        self.record = HistoryRecord(86_400.0)
        store = RecordStore(client, "history", namespace, KEY)
        self.keeper = RecordKeeper(
            self.record, store, self.problems, "History", NEVER_S, lambda: None
        )
        self.leadership = Leadership(term, lambda: 0.0, 1.0)

    def note(self, name: str, at: float) -> None:
        gang = Gang("team", name, "q", True)
        self.record.add(HistoryEntry(HistoryKind.PLANNED, gang, at, at, pods=1, reason="Succeeded"))


async def stored(client: Client, namespace: str, name: str = "history") -> Past:
    found = await client.get(CONFIG_MAPS, name, namespace)
    return decode((found.data or {})[KEY])


async def test_a_leader_of_an_earlier_term_does_not_overwrite_the_history_of_a_later_one(
    client: Client, namespace: str
) -> None:
    late, later = (Leader(client, namespace, term) for term in (1, 2))
    async with late.keeper.kept(late.leadership):
        late.note("first", 1_000.0)
        async with later.keeper.kept(later.leadership):
            later.note("second", 1_100.0)

    past = await stored(client, namespace)
    assert past.term == 2
    assert [entry.gang.name for entry in past.entries] == ["second"]


async def test_a_malformed_history_is_reported_once_and_begins_again(
    client: Client, namespace: str
) -> None:
    body = {"metadata": {"name": "history"}, "data": {KEY: "scribble"}}
    await client.create(CONFIG_MAPS, body, namespace)
    leader = Leader(client, namespace, 1)
    async with leader.keeper.kept(leader.leadership):
        leader.note("train", 1_000.0)

    assert leader.problems.reasons == ["HistoryMalformed"]
    assert [e.gang.name for e in (await stored(client, namespace)).entries] == ["train"]


@pytest.fixture
def recording(installation: Installation, pool: str) -> Iterator[SchedulerConfiguration]:
    """A scheduler's configuration with a history, and what the chart installs for it."""
    plane = installation.control_plane
    values = {
        "scheduler": {"configuration": {"nodePool": pool}},
        "dashboard": {"enabled": True},
        "workloads": {"enabled": False},
    }
    rendered = render(plane, values)
    documents = [
        document
        for document in rendered
        if any(
            word in json.dumps(document["metadata"])
            for word in ("bindery-history", "-records", "bindery-dashboard")
        )
    ]
    # Other tests share the reader's role of the default pool.
    for document in rendered:
        if (document["kind"], name_of(document)) == ("Role", "bindery-reader"):
            documents.append(renamed(document, f"reader-{pool}"))
        if (document["kind"], name_of(document)) == ("RoleBinding", "bindery-dashboard-reader"):
            bound = renamed(document, f"reader-{pool}")
            role = {**bound["roleRef"], "name": f"reader-{pool}"}  # type: ignore[dict-item]
            documents.append({**bound, "roleRef": role})
    apply(installation, documents)
    history = HistoryConfiguration(enabled=True, save_seconds=10)
    yield SchedulerConfiguration(node_pool=pool, leader_election=NO_ELECTION, history=history)
    plane.kubectl("delete", "configmap", history_name(pool), f"--namespace={RECORDS}")


def name_of(document: Mapping[str, object]) -> object:
    metadata = document["metadata"]
    return metadata["name"] if isinstance(metadata, dict) else None


def renamed(document: Mapping[str, object], name: str) -> dict[str, object]:
    return {**document, "metadata": {"name": name, "namespace": RECORDS}}


def apply(installation: Installation, documents: list[dict[str, object]]) -> None:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})
    installation.control_plane.kubectl(
        "apply", "--server-side", "--force-conflicts", "--filename=-", stdin=text
    )


@contextmanager
def page(installation: Installation, pool: str) -> Iterator[str]:
    """Open the pages with the account that the chart gives the dashboard; yield the address."""
    plane = installation.control_plane
    account = "bindery-dashboard"
    token = plane.kubectl("create", "token", account, f"--namespace={NAMESPACE}").strip()
    server = kubeconfig.Server.read(plane.admin_kubeconfig)
    path = plane.state_dir / "kubeconfigs" / "page.kubeconfig"
    access = kubeconfig.write(path, server, account, token)
    command = [sys.executable, "-m", "bindery.cli.main", f"--kubeconfig={access}"]
    command += ["dashboard", "open", "--no-browser", f"--node-pool={pool}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def look(address: str, namespace: str, directory: Path) -> tuple[str, str]:
    """Return what a person reads about the gangs `train` and `stuck`."""
    with chromium() as browser, Visitor(browser, address).window() as visit:
        visit.go(f"/gangs/{namespace}/train")
        visit.page.screenshot(path=directory / "train.png", full_page=True)
        train = visit.text()
        assert visit.barriers() == []
        visit.go(f"/gangs/{namespace}/stuck")
        stuck = visit.text("#facts")
        visit.check()
    return train, stuck


@pytest.mark.usefixtures("binder")
async def test_a_restarted_scheduler_goes_on_with_the_history_and_the_page_shows_it(
    installation: Installation,
    recording: SchedulerConfiguration,
    components: Components,
    corner: Corner,
    pool: str,
    tmp_path: Path,
) -> None:
    await corner.add_nodes("a", "b")
    scheduler = components.start_scheduler(recording).wait_ready()
    await corner.submit(support.Gang("train", 4), support.Gang("stuck", 1, cpu="64"))
    await corner.wait_bound(support.Gang("train", 4))
    condition = await corner.wait_condition(support.Gang("stuck", 1), "False", "Unschedulable")

    async def noted() -> bool:
        found = await corner.client.get(CONFIG_MAPS, history_name(pool), RECORDS)
        text = (found.data or {}).get(KEY, "")
        return bool(text) and any(e.kind is HistoryKind.PLANNED for e in decode(text).entries)

    await wait_for(noted, "the plan is in the history")
    scheduler.stop()
    first = await stored(corner.client, RECORDS, history_name(pool))
    components.start_scheduler(recording, name="scheduler-again").wait_ready()

    [plan] = [each for each in first.entries if each.kind is HistoryKind.PLANNED]
    assert (plan.gang.namespace, plan.gang.name, plan.pods) == (corner.namespace, "train", 4)
    assert (plan.reason, plan.node_count) == ("Succeeded", 2)
    with page(installation, pool) as address:
        train, stuck = await asyncio.to_thread(look, address, corner.namespace, tmp_path)
    assert "plan for 4 pods: Succeeded" in train
    assert "4 of 4 bound" in train
    assert f"{condition.reason}: " in stuck
    second = await stored(corner.client, RECORDS, history_name(pool))
    assert second.entries[: len(first.entries)] == first.entries
