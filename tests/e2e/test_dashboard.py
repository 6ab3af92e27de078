"""The pages on a real API server: two tenants and an auditor, each with an own token."""

import asyncio
import html
import re
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from bindery.dashboard import process
from bindery.dashboard.sessions import RIGHTS_S
from bindery.observability.listening import LOOPBACK, NOWHERE
from devcluster.plane import ControlPlane
from tests.administrator import Administrator
from tests.e2e.support import Corner, Gang, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("scheduler", "binder")]

SECRET = "merger-with-acme"
LINK = re.compile(r'href="([^"#]*)')
FIRST = ("/", "/gangs?show=all", "/queues", "/nodes", "/promises", "/whatif")


@dataclass(frozen=True)
class Person:
    """A person with a token at the pages."""

    session: aiohttp.ClientSession
    token: str
    base: str

    async def get(self, path: str) -> tuple[int, str]:
        given = {"Authorization": f"Bearer {self.token}"}
        async with self.session.get(
            self.base + path, headers=given, allow_redirects=False
        ) as answer:
            return answer.status, await answer.text()

    async def pages(self) -> dict[str, str]:
        """Return all pages that links lead to, each also as JSON: path -> text."""
        found: dict[str, str] = {}
        left = list(FIRST)
        while left:
            path = left.pop()
            if path in found or path.startswith("/static") or "sort=" in path:
                continue  # another order has the same names
            status, found[path] = await self.get(path)
            assert status == 200, (path, status)
            if not path.partition("?")[0].endswith((".json", ".csv")):
                here = path.partition("?")[0]
                links = (html.unescape(link) for link in LINK.findall(found[path]))
                left += [here + link if link.startswith("?") else link for link in links]
            assert len(found) < 1000
        return found


@pytest.fixture
def other_namespace(administrator: Administrator) -> Iterator[str]:
    with administrator.fresh_namespace() as name:
        yield name


def token(plane: ControlPlane, namespace: str, name: str) -> str:
    scope = f"--namespace={namespace}"
    plane.kubectl("create", "serviceaccount", name, scope)
    return plane.kubectl("create", "token", name, scope, "--duration=1h").strip()


def allow(plane: ControlPlane, namespace: str, name: str) -> None:
    subject = f"--serviceaccount={namespace}:{name}"
    plane.kubectl(
        "create", "rolebinding", name, "--clusterrole=edit", subject, f"--namespace={namespace}"
    )


@pytest.fixture
async def base(reader: Path, pool: str) -> AsyncIterator[str]:
    """The address of the pages, whose account may read as the chart's role for readers."""
    with closing(socket.socket()) as free:
        free.bind((LOOPBACK, 0))
        port = free.getsockname()[1]
    options = process.DashboardOptions(
        process.Served(LOOPBACK, port), NOWHERE, reader, "kube-system", pool
    )
    task = asyncio.create_task(process.run(options))

    async def answers() -> bool:
        assert not task.done(), task
        async with aiohttp.ClientSession() as session:
            try:
                async with session.get(f"http://{LOOPBACK}:{port}/login") as answer:
                    return answer.status == 200
            except aiohttp.ClientConnectionError:
                return False

    await wait_for(answers, "the pages answer")
    yield f"http://{LOOPBACK}:{port}"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as made:
        yield made


async def test_each_tenant_sees_only_the_own_namespace_and_an_auditor_all(
    corner: Corner,
    other_namespace: str,
    control_plane: ControlPlane,
    base: str,
    session: aiohttp.ClientSession,
) -> None:
    other = Corner(corner.client, other_namespace, corner.pool)
    (node,) = await corner.add_nodes("a", cpu="2")
    queue = await corner.add_queue("shared", {"resources": {"cpu": {"quota": 2, "limit": 4}}})
    running, ahead = Gang(SECRET, 2, queue=queue), Gang(f"{SECRET}-ahead", 2, queue=queue)
    await other.submit(running)
    await other.wait_bound(running)
    await other.submit(ahead)
    await other.wait_condition(ahead, "False", "Unschedulable")
    await asyncio.sleep(1)  # times of creation are whole seconds; gangs of one come by name
    await corner.submit(Gang("mine", 2, queue=queue))
    await corner.wait_condition(Gang("mine", 2), "False", "Unschedulable")
    people = {}
    for name, where in (("tenant", corner.namespace), ("rival", other_namespace)):
        people[name] = Person(session, token(control_plane, where, name), base)
        allow(control_plane, where, name)
    auditor = Person(session, token(control_plane, corner.namespace, "auditor"), base)
    control_plane.kubectl(
        "create",
        "clusterrolebinding",
        f"auditor-{corner.namespace}",
        "--clusterrole=cluster-admin",
        f"--serviceaccount={corner.namespace}:auditor",
    )
    try:

        async def is_seen() -> bool:
            _, text = await people["tenant"].get("/gangs.json")
            return '"name": "mine"' in text

        await wait_for(is_seen, "the gang is on the page")
        for path, text in (await people["tenant"].pages()).items():
            for name in (other_namespace, SECRET):
                assert name not in text, path
        _, text = await people["tenant"].get(f"/gangs/{corner.namespace}/mine")
        assert "1 gang of others" in text
        hidden = await people["tenant"].get(f"/gangs/{other_namespace}/{SECRET}.json")
        missing = await people["tenant"].get(f"/gangs/{other_namespace}/no-such.json")
        assert hidden == missing
        assert hidden[0] == 404
        for path, text in (await people["rival"].pages()).items():
            # The rival's pods are in this queue and on this node, whose names have the namespace's.
            assert corner.namespace not in text.replace(queue, "").replace(node, ""), path
        everything = await auditor.pages()
        assert any(SECRET in text for text in everything.values())
        assert any(corner.namespace in text for text in everything.values())

        begun = time.monotonic()
        control_plane.kubectl("delete", "rolebinding", "tenant", f"--namespace={corner.namespace}")

        async def is_gone() -> bool:
            status, text = await people["tenant"].get("/gangs.json?show=all")
            return status == 200 and '"name": "mine"' not in text

        await wait_for(is_gone, "the gang is gone from the page", RIGHTS_S + 30)
        assert time.monotonic() - begun < 60
    finally:
        control_plane.kubectl("delete", "clusterrolebinding", f"auditor-{corner.namespace}")
        await other.clean()


async def test_a_token_that_is_none_gets_nothing(base: str, session: aiohttp.ClientSession) -> None:
    status, text = await Person(session, "no-token", base).get("/gangs.json")

    assert (status, "error" in text) == (401, True)
