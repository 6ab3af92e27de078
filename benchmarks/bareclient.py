"""A bare client: the writes of scheduler and binder, made by one process that decides nothing.

Run by `contenders` as a program of its own. Its BindRequests are given, or it reads the cluster
once and lets the engine plan in memory, so that they are those that the scheduler would write; then
the clock starts, and for each request it creates it, binds its pods and patches its status, many at
once. What it makes is the most that these writes allow a single Python process on this machine.
With bindings alone it writes no BindRequests, which no way to bind pods can fall below.
"""

import argparse
import asyncio
import json
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import sessioncarrier
from benchmarks.workload import Wire
from bindery.api.configuration import BindRequestConfiguration, SchedulerConfiguration
from bindery.kube.access.credentials import Credentials
from bindery.kube.client import Client
from bindery.kube.objects.bindrequests import CommittedStatement
from bindery.kube.objects.resources import BIND_REQUESTS, NODES, POD_GROUPS, PODS, Resource
from bindery.kube.watches.store import Change, EventType
from bindery.scheduler.commit.drafts import StatementDraft
from bindery.scheduler.commit.requests import BindRequestDraft
from bindery.scheduler.engine import Engine

_KINDS: Sequence[Resource[Any]] = (NODES, POD_GROUPS, PODS)

Binding = tuple[str, str, str, str]
"""Namespace, name and UID of a pod, and its node."""


async def plan(client: Client, max_pods: int) -> list[StatementDraft]:
    """Read the cluster, plan all its pods, and return the Statements."""
    requests = BindRequestConfiguration(max_pods=max_pods)
    engine = Engine(SchedulerConfiguration(bind_request=requests), time.time)
    for kind in _KINDS:
        for item in await client.list(kind):
            engine.cluster.apply(Change(EventType.ADDED, item, None))
    return list(engine.cycle())


def bind_requests(drafts: Iterable[StatementDraft], pods_per_request: int) -> Iterator[Wire]:
    """Yield requests with Statements of one namespace and up to `pods_per_request` pods.

    A Statement with more pods is alone in its request, and so is each if the number is 0.
    """
    together: list[StatementDraft] = []
    pods = 0
    for draft in sorted(drafts, key=lambda draft: draft.namespace):
        pods += len(draft.tasks)
        if together and (pods > pods_per_request or draft.namespace != together[0].namespace):
            yield BindRequestDraft(tuple(together)).to_object()
            together, pods = [], len(draft.tasks)
        together.append(draft)
    if together:
        yield BindRequestDraft(tuple(together)).to_object()


def bindings_of(drafts: Iterable[StatementDraft]) -> Iterator[list[Binding]]:
    """Yield the bindings of each Statement."""
    for draft in drafts:
        pods = draft.spec.pods
        yield [(draft.namespace, pod.pod_name, pod.pod_uid, pod.selected_node) for pod in pods]


async def bind(client: Client, bindings: Iterable[Binding]) -> None:
    """Bind pods, all at once."""
    async with asyncio.TaskGroup() as group:
        for binding in bindings:
            group.create_task(client.bind(*binding))


async def carry_out(client: Client, request: Wire) -> None:
    """Create one request, bind its pods at once, and write the outcome."""
    created = await client.create(BIND_REQUESTS, request, request["metadata"]["namespace"])
    meta, statements = created.metadata, created.each()
    pods = [pod for statement in statements for pod in statement.spec.pods]
    await bind(
        client, ((meta.namespace, pod.pod_name, pod.pod_uid, pod.selected_node) for pod in pods)
    )
    patch = {
        "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
        "status": _succeeded(statements),
    }
    await client.patch(
        BIND_REQUESTS, meta.name, patch, namespace=meta.namespace, subresource="status"
    )


def _succeeded(statements: Sequence[CommittedStatement]) -> Wire:
    """Return the status that the binder would write."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    uids = [pod.pod_uid for statement in statements for pod in statement.spec.pods]
    outcome: Wire = {"phase": "Succeeded", "reason": "Bound", "completionTime": now}
    whole = {**outcome, "message": "", "failedAttempts": 0, "boundCount": len(uids)}
    return {**whole, "statements": [{"id": each.key.statement, **outcome} for each in statements]}


async def run(arguments: argparse.Namespace) -> None:
    """Plan, print when the first write begins, and write everything, so many at a time."""
    async with await _connect(arguments.kubeconfig, by_session=arguments.by_session) as client:
        bindings: Iterator[list[Binding]] = iter(())
        requests: Iterator[Wire] = iter(())
        if arguments.requests is not None:
            requests = iter(json.loads(arguments.requests.read_text(encoding="utf-8")))
        elif arguments.bindings_alone:
            bindings = bindings_of(await plan(client, arguments.max_pods))
        else:
            drafts = await plan(client, arguments.max_pods)
            requests = bind_requests(drafts, arguments.pods_per_request)
        print(json.dumps({"started_s": time.monotonic()}), flush=True)

        async def work() -> None:
            for request in requests:
                await carry_out(client, request)
            for some in bindings:
                await bind(client, some)

        async with asyncio.TaskGroup() as group:
            for _ in range(arguments.at_once):
                group.create_task(work())


async def _connect(file: Path, *, by_session: bool) -> Client:
    if by_session:
        return sessioncarrier.connect(await Credentials.load(file, None), "bench-bare", 64)
    return await Client.connect(file, user_agent="bench-bare", connections=64)


def main() -> None:
    """Read the command line and run; then wait to be stopped, so that usage can be read."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--max-pods", type=int, default=500)
    parser.add_argument("--pods-per-request", type=int, default=0)
    parser.add_argument("--bindings-alone", action="store_true")
    parser.add_argument("--by-session", action="store_true", help="send by an aiohttp session")
    parser.add_argument("--at-once", type=int, required=True)
    parser.add_argument("--requests", type=Path, help="a JSON list of BindRequests to carry out")
    asyncio.run(run(parser.parse_args()))
    signal.pause()


if __name__ == "__main__":
    main()
