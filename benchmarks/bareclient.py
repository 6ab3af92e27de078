"""A bare client: the writes of scheduler and binder, made by one process that decides nothing.

Run by `contenders` as a program of its own. It reads the cluster once and lets the engine plan in
memory, so that its BindRequests are those that the scheduler would write; then the clock starts,
and for each request it creates it, binds its pods and patches its status, many requests at once.
What it makes is the most that these writes allow a single Python process on this machine.
"""

import argparse
import asyncio
import json
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bindery.api.configuration import BindRequestConfiguration, SchedulerConfiguration
from bindery.kube.client import Client
from bindery.kube.resources import BIND_REQUESTS, NODES, POD_GROUPS, PODS, Resource
from bindery.kube.store import Change, EventType
from bindery.scheduler.commit import BindRequestDraft
from bindery.scheduler.engine import Engine

_KINDS: Sequence[Resource[Any]] = (NODES, POD_GROUPS, PODS)


async def plan(client: Client, max_pods: int) -> list[BindRequestDraft]:
    """Read the cluster and plan all its pods."""
    requests = BindRequestConfiguration(max_pods=max_pods)
    engine = Engine(SchedulerConfiguration(bind_request=requests), time.time)
    for kind in _KINDS:
        for item in await client.list(kind):
            engine.cluster.apply(Change(EventType.ADDED, item, None))
    return list(engine.cycle())


async def carry_out(client: Client, draft: BindRequestDraft) -> None:
    """Create one request, bind its pods at once, and write the outcome."""
    created = await client.create(BIND_REQUESTS, draft.to_object(), draft.namespace)
    pods = draft.spec.pods
    async with asyncio.TaskGroup() as group:
        for pod in pods:
            group.create_task(
                client.bind(draft.namespace, pod.pod_name, pod.pod_uid, pod.selected_node)
            )
    meta = created.metadata
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
        BIND_REQUESTS, meta.name, patch, namespace=draft.namespace, subresource="status"
    )


async def run(kubeconfig: Path, max_pods: int, at_once: int) -> None:
    """Plan, print when the first write begins, and write everything, `at_once` at a time."""
    async with Client.connect(kubeconfig, user_agent="bench-bare", connections=64) as client:
        drafts = iter(await plan(client, max_pods))
        print(json.dumps({"started_s": time.monotonic()}), flush=True)

        async def work() -> None:
            for draft in drafts:
                await carry_out(client, draft)

        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(work())


def main() -> None:
    """Read the command line and run; then wait to be stopped, so that usage can be read."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--max-pods", type=int, required=True)
    parser.add_argument("--at-once", type=int, required=True)
    arguments = parser.parse_args()
    asyncio.run(run(arguments.kubeconfig, arguments.max_pods, arguments.at_once))
    signal.pause()


if __name__ == "__main__":
    main()
