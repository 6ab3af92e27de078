"""The end of a BindRequest that was not watched frees no room before its pods are listed."""

from pathlib import Path

import pytest

from bindery.api.names import API_VERSION, NODE_POOL_LABEL
from bindery.kube.client import Client
from bindery.kube.objects.resources import BIND_REQUESTS
from bindery.scheduler.cache.cluster import Cluster
from bindery.scheduler.cache.feed import Feed
from bindery.scheduler.model.jobs import TaskStatus, Uid
from devcluster.plane import ControlPlane
from tests.e2e.feeds import running
from tests.e2e.support import Corner, Gang, scheduler_configuration, wait_for
from tests.kube.faultproxy import Fault, FaultProxy

pytestmark = pytest.mark.e2e

WAIT_S = 60.0


@pytest.mark.usefixtures("installation")
async def test_a_bind_request_removed_unwatched_holds_its_room_until_its_pods_are_listed(
    control_plane: ControlPlane, corner: Corner, tmp_path: Path
) -> None:
    gang = Gang("g", size=1)
    await corner.create_group(gang)
    pod = await corner.create_pod(gang, 0)
    uid = Uid(pod.metadata.uid)
    cluster = Cluster(scheduler_configuration(corner.pool), lambda: 0.0)

    async def stands(*wanted: TaskStatus) -> bool:
        task = cluster.state.tasks.get(uid)
        return task is not None and task.status in wanted

    async with (
        FaultProxy(control_plane.admin_kubeconfig, tmp_path).serve() as proxy,
        Client.connect(proxy.kubeconfig, user_agent="bindery-test/0") as proxied,
        running(Feed(proxied, cluster)),
    ):
        await corner.client.create(BIND_REQUESTS, _request(uid, corner.pool), corner.namespace)
        await wait_for(lambda: stands(TaskStatus.BINDING), "the pod counts as binding", WAIT_S)

        away = proxy.break_next(Fault("GET", "bindrequests", times=1000, status=503))
        proxy.accepts_streams.clear()  # from here on no event arrives
        proxy.cut_streams()
        await corner.client.bind(corner.namespace, pod.metadata.name, uid, "elsewhere")
        await corner.client.delete(BIND_REQUESTS, "r", corner.namespace)
        proxy.break_next(Fault("GET", "bindrequests", status=410))
        away.times = 0
        # Only a change is announced: what stands between two of them is what a cycle would see.
        await wait_for(
            lambda: stands(TaskStatus.PENDING, TaskStatus.RUNNING), "the request's end", WAIT_S
        )

        assert cluster.state.tasks[uid].status is TaskStatus.RUNNING
        proxy.accepts_streams.set()


def _request(uid: Uid, pool: str) -> dict[str, object]:
    place = {"podName": "g-0", "podUID": uid, "selectedNode": "elsewhere"}
    statement = {"id": f"{uid}-1.1", "pods": [place], "queue": "default"}
    metadata = {"name": "r", "labels": {NODE_POOL_LABEL: pool}}
    return {
        "apiVersion": API_VERSION, "kind": "BindRequest",
        "metadata": metadata, "spec": {"statements": [statement]},
    }  # fmt: skip
