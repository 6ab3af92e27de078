"""A bare client: the writes of scheduler and binder, made by one process that decides nothing.

Run by `contenders` as a program of its own. Its BindRequests are given, or it reads the cluster
once and lets the engine plan in memory, so that they are those that the scheduler would write; then
the clock starts, and for each request it creates it, binds its pods and patches its status, many at
once. What it makes is the most that these writes allow a single Python process on this machine.
"""

import argparse
import asyncio
import json
import signal
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.workload import Wire
from bindery.api.configuration import BindRequestConfiguration, SchedulerConfiguration
from bindery.kube.client import Client
from bindery.kube.resources import BIND_REQUESTS, NODES, POD_GROUPS, PODS, Resource
from bindery.kube.store import Change, EventType
from bindery.scheduler.engine import Engine

_KINDS: Sequence[Resource[Any]] = (NODES, POD_GROUPS, PODS)


async def plan(client: Client, max_pods: int) -> Iterable[Wire]:
    """Read the cluster, plan all its pods, and return the BindRequests."""
    requests = BindRequestConfiguration(max_pods=max_pods)
    engine = Engine(SchedulerConfiguration(bind_request=requests), time.time)
    for kind in _KINDS:
        for item in await client.list(kind):
            engine.cluster.apply(Change(EventType.ADDED, item, None))
    drafts = list(engine.cycle())
    return (draft.to_object() for draft in drafts)


async def carry_out(client: Client, request: Wire) -> None:
    """Create one request, bind its pods at once, and write the outcome."""
    created = await client.create(BIND_REQUESTS, request, request["metadata"]["namespace"])
    meta, pods = created.metadata, created.spec.pods
    async with asyncio.TaskGroup() as group:
        for pod in pods:
            group.create_task(
                client.bind(meta.namespace, pod.pod_name, pod.pod_uid, pod.selected_node)
            )
    patch = {
        "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
        "status": {
            "phase": "Succeeded",
            "reason": "Bound",
            "message": "",
            "failedAttempts": 0,
            "boundPods": [pod.pod_uid for pod in pods],
            "unboundPods": [],
            "progress": f"{len(pods)}/{len(pods)}",
            "nodes": pods[0].selected_node,
            "completionTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "nextAttemptTime": None,
        },
    }
    await client.patch(
        BIND_REQUESTS, meta.name, patch, namespace=meta.namespace, subresource="status"
    )


async def run(arguments: argparse.Namespace) -> None:
    """Plan, print when the first write begins, and write everything, so many at a time."""
    connecting = Client.connect(arguments.kubeconfig, user_agent="bench-bare", connections=64)
    async with connecting as client:
        if arguments.requests is None:
            requests = iter(await plan(client, arguments.max_pods))
        else:
            requests = iter(json.loads(arguments.requests.read_text(encoding="utf-8")))
        print(json.dumps({"started_s": time.monotonic()}), flush=True)

        async def work() -> None:
            for request in requests:
                await carry_out(client, request)

        async with asyncio.TaskGroup() as group:
            for _ in range(arguments.at_once):
                group.create_task(work())


def main() -> None:
    """Read the command line and run; then wait to be stopped, so that usage can be read."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--max-pods", type=int, default=500)
    parser.add_argument("--at-once", type=int, required=True)
    parser.add_argument("--requests", type=Path, help="a JSON list of BindRequests to carry out")
    asyncio.run(run(parser.parse_args()))
    signal.pause()


if __name__ == "__main__":
    main()
