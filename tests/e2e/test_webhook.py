"""The admission webhook, called by the real API server."""

import asyncio
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from bindery.api.configuration import PluginConfiguration
from bindery.api.gpushare import CONFIG_MAP_ANNOTATION
from bindery.api.names import GROUP, NODE_POOL_LABEL, POD_GROUP_ANNOTATION, QUEUE_LABEL
from bindery.kube.errors import ApiError
from bindery.kube.objects.resources import PODS, Resource
from bindery.kube.objects.watched import KubeObject
from devcluster.components import Components
from devcluster.install import Installation
from devcluster.plane import ControlPlane
from devcluster.ports import free_port
from fakes.reservations import GpuDevicePlugins
from tests.e2e.gpunodes import HALF, bound, environment, sharing, start_gpu_nodes
from tests.e2e.support import Corner, Gang, binder_configuration, wait_for
from tests.e2e.webhooks import OneWebhook, Webhooks, served_certificate

pytestmark = pytest.mark.e2e


class RawPod(KubeObject, frozen=True, kw_only=True):
    spec: dict[str, Any]


RAW_PODS = Resource(PODS.group, PODS.version, PODS.plural, PODS.kind, True, RawPod)


@pytest.fixture
def webhooks(
    control_plane: ControlPlane, installation: Installation, namespace: str
) -> Iterator[Webhooks]:
    webhooks = Webhooks(control_plane, namespace)
    yield webhooks
    webhooks.remove()


@pytest.fixture
def access(webhooks: Webhooks) -> Path:
    return webhooks.install()


async def create(corner: Corner, name: str, annotations: Mapping[str, str], **spec: Any) -> RawPod:
    """Create a pod as users do, without the fields that components add."""
    container = {"name": "worker", "image": "worker", **spec.pop("container", {})}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{name}-0",
            "labels": {NODE_POOL_LABEL: corner.pool},
            "annotations": {POD_GROUP_ANNOTATION: name, **annotations},
        },
        "spec": {
            "schedulerName": "bindery",
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
            **spec,
        },
    }
    return await corner.client.create(RAW_PODS, body, corner.namespace)


async def test_a_share_is_prepared_and_gets_its_gpu(
    corner: Corner,
    components: Components,
    webhooks: Webhooks,
    access: Path,
    scheduler: object,
    stand_in: GpuDevicePlugins,
) -> None:
    webhooks.start(access)
    await webhooks.wait_trusted()
    components.start_binder(binder_configuration(sharing())).wait_ready()
    start_gpu_nodes(components, corner, 1, gpus=1).wait_ready()
    await corner.create_group(Gang("a", size=1))
    own = {"env": [{"name": "MINE", "value": "1"}, {"name": "GPU_PORTION", "value": "9"}]}

    pod = await create(corner, "a", HALF, container=own)

    prefix = pod.metadata.annotations[CONFIG_MAP_ANNOTATION]
    told = pod.spec["containers"][0]["env"]
    assert told[0] == {"name": "MINE", "value": "1"}
    assert [each["name"] for each in told[1:]] == [
        "NVIDIA_VISIBLE_DEVICES",
        "GPU_PORTION",
        "RUNAI_NUM_OF_GPUS",
    ]
    assert {each["valueFrom"]["configMapKeyRef"]["name"] for each in told[1:]} == {f"{prefix}-0"}
    (placed,) = await bound(corner, "a")
    assert (await environment(corner, placed))["NVIDIA_VISIBLE_DEVICES"] == "0"


@pytest.mark.usefixtures("installation", "serving")
class TestWhatOneWebhookAnswers(OneWebhook):
    """These leave nothing behind, so they share a namespace and a webhook."""

    @pytest.mark.parametrize(
        ("annotations", "limits", "reason"),
        [
            ({"gpu-fraction": "1.5"}, {}, "gpu-fraction must be above 0 and below 1, not '1.5'"),
            ({"gpu-fraction": "-0.5"}, {}, "gpu-fraction must be above 0 and below 1"),
            ({"gpu-fraction": "half"}, {}, "gpu-fraction must be above 0 and below 1"),
            ({"gpu-memory": "1Gi"}, {}, "gpu-memory must be a whole number of MiB"),
            ({**HALF, "gpu-memory": "1"}, {}, "gpu-fraction and gpu-memory cannot both be given"),
            (HALF, {"nvidia.com/gpu": "1"}, "a share of a GPU and nvidia.com/gpu cannot both"),
            ({"gpu-fraction-num-devices": "2"}, {}, "has no effect without"),
            ({**HALF, "gpu-fraction-num-devices": "0"}, {}, "a whole number from 1 to 64"),
            ({**HALF, "gpu-fraction-container-name": "x"}, {}, "has no such container"),
            ({f"{GROUP}/podgroup": "a"}, {}, f"did you mean the annotation {GROUP}/pod-group?"),
        ],
    )
    async def test_an_invalid_pod_is_refused_with_the_reason(
        self,
        corner: Corner,
        annotations: Mapping[str, str],
        limits: Mapping[str, str],
        reason: str,
    ) -> None:
        container = {"resources": {"limits": dict(limits)}}
        with pytest.raises(ApiError) as refused:
            await create(corner, "a", annotations, container=container)

        assert reason in refused.value.message

    async def test_pods_of_other_schedulers_and_pods_without_shares_are_not_changed(
        self, corner: Corner
    ) -> None:
        others = await create(corner, "others", {"gpu-fraction": "7"}, schedulerName="by-hand")
        plain = await create(corner, "plain", {})

        assert CONFIG_MAP_ANNOTATION not in others.metadata.annotations
        assert "env" not in plain.spec["containers"][0]


async def annotate(corner: Corner, name: str, annotations: Mapping[str, str | None]) -> None:
    patch = {"metadata": {"annotations": dict(annotations)}}
    await corner.client.patch(RAW_PODS, f"{name}-0", patch, namespace=corner.namespace)


async def test_forged_devices_of_hami_are_refused_with_the_name_of_the_annotation(
    corner: Corner, webhooks: Webhooks, access: Path
) -> None:
    webhooks.plugins = (PluginConfiguration(name="hami"),)
    webhooks.start(access)
    await webhooks.wait_trusted()
    forged = {"hami.io/vgpu-devices-to-allocate": "GPU-9,NVIDIA,1,1:;"}
    said = "hami.io/vgpu-devices-to-allocate is written by the binder only"

    with pytest.raises(ApiError, match=said):
        await create(corner, "a", forged)
    await create(corner, "a", {})
    with pytest.raises(ApiError, match=said):
        await annotate(corner, "a", forged)
    limits = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    with pytest.raises(ApiError, match="'up' is none of"):
        await create(corner, "b", {"hami.io/gpu-scheduler-policy": "up"}, container=limits)


async def test_invalid_changes_are_refused_and_all_others_are_permitted(
    corner: Corner, webhooks: Webhooks
) -> None:
    await create(corner, "old", {"gpu-fraction": "7"})  # before there was a webhook
    webhooks.start(webhooks.install())
    await webhooks.wait_trusted()
    await create(corner, "a", HALF)

    with pytest.raises(ApiError, match=r"gpu-fraction must be above 0 and below 1, not '1\.5'"):
        await annotate(corner, "a", {"gpu-fraction": "1.5"})
    with pytest.raises(ApiError, match="cannot both be given"):
        await annotate(corner, "a", {"gpu-memory": "100"})
    await annotate(corner, "a", {"gpu-fraction": "0.25", "mine": "1"})

    with pytest.raises(ApiError, match=f"{QUEUE_LABEL} has no effect: it must be a label"):
        await annotate(corner, "a", {QUEUE_LABEL: "research"})

    await annotate(corner, "old", {"mine": "1"})
    with pytest.raises(ApiError, match="cannot both be given"):
        await annotate(corner, "old", {"gpu-memory": "100"})
    await annotate(corner, "old", {"gpu-fraction": None})


@pytest.fixture
async def serving(webhooks: Webhooks, access: Path) -> Webhooks:
    webhooks.start(access)
    await webhooks.wait_trusted()
    return webhooks


@pytest.mark.long("half a minute")
async def test_no_pod_is_refused_while_certificates_and_authorities_are_renewed(
    corner: Corner, webhooks: Webhooks, access: Path
) -> None:
    short = {"certificate_seconds": 9, "authority_seconds": 21, "overlap_seconds": 2}
    other = free_port()
    webhooks.start(access, **short)
    webhooks.start(access, port=other, **short)
    await webhooks.wait_trusted()
    certificates: set[bytes] = set()
    authorities: set[str] = set()
    deadline = time.monotonic() + 120

    number = 0
    while len(certificates) < 3 or len(authorities) < 2:
        assert time.monotonic() < deadline, (number, len(certificates), len(authorities))
        await create(corner, f"p{number}", HALF)
        number += 1
        certificates.add(await served_certificate(webhooks.port))
        authorities.add(await asyncio.to_thread(webhooks.trusted))

    async def same() -> bool:
        mine, theirs = webhooks.port, other
        return await served_certificate(mine) == await served_certificate(theirs)

    await wait_for(same, "both replicas serve the same certificate")


async def test_the_secret_is_deleted_with_the_webhook_configurations(
    webhooks: Webhooks, access: Path, control_plane: ControlPlane
) -> None:
    """As `helm uninstall` deletes them, while replicas still run."""
    webhooks.start(access)
    await webhooks.wait_trusted()

    webhooks.delete_configurations()

    await wait_for(lambda: webhooks.has_secret(expected=False), "the Secret is deleted")
    await asyncio.sleep(2.0)
    assert await webhooks.has_secret(expected=False)


async def test_a_damaged_secret_is_replaced(
    corner: Corner, serving: Webhooks, control_plane: ControlPlane
) -> None:
    before = await served_certificate(serving.port)
    control_plane.kubectl(
        "patch",
        "secret",
        "bindery-webhook",
        "--namespace=bindery-system",
        '--patch={"data": {"tls.key": "bm8ga2V5"}}',
    )

    async def renewed() -> bool:
        return await served_certificate(serving.port) != before

    await wait_for(renewed, "another certificate is served")

    async def created() -> bool:
        try:
            await create(corner, "a", HALF)
        except ApiError:  # until the API server has heard of the new authority
            return False
        return True

    await wait_for(created, "pods are let in again")


async def test_without_the_webhook_the_pod_waits_with_the_reason(
    corner: Corner,
    components: Components,
    webhooks: Webhooks,
    scheduler: object,
) -> None:
    webhooks.failure_policy = "Ignore"
    webhooks.install()
    start_gpu_nodes(components, corner, 1, gpus=1).wait_ready()
    await corner.create_group(Gang("a", size=1))

    await create(corner, "a", HALF)

    await corner.wait_pods_say(Gang("a", 1), "the admission webhook was not running")
