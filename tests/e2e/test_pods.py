"""The chart's pods, started as by a kubelet: user 65532, no HOME, a read-only root."""

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bindery.api.gpushare import INDEX_ANNOTATION, RESERVATION_NAMESPACE
from bindery.binder.plugins.gpusharing.arguments import GpuSharingArguments
from bindery.binder.plugins.gpusharing.objects import reservation
from bindery.kube.errors import ApiError
from bindery.kube.objects.resources import PODS
from devcluster import install
from devcluster.install import Installation
from devcluster.plane import ControlPlane
from tests.e2e.containers import Container, Pod, require_container_tools
from tests.e2e.support import Corner, Gang, wait_for
from tests.e2e.workloads import JOBS, Maker

pytestmark = pytest.mark.e2e

WEBHOOK = "bindery-webhook"
DEVICE = "GPU-6f0b1d2e-5a3c-4c1d-9d57-0a1b2c3d4e5f"


@dataclass
class Kubelet:
    """Starts the chart's pods on this machine."""

    installation: Installation
    namespace: str
    directory: Path
    webhook_address: str
    started: list[Container] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.plane: ControlPlane = self.installation.control_plane
        selector = {"key": "kubernetes.io/metadata.name", "operator": "In"}
        values = {
            "hollow": {"enabled": True, "namePrefixes": [f"{self.namespace}-"]},
            "binder": {"configuration": {"webhook": {"dnsNames": [self.webhook_address]}}},
            "webhook": {
                "url": f"https://{self.webhook_address}:8443",
                "failurePolicy": "Fail",
                "namespaceExpressions": [{**selector, "values": [self.namespace]}],
            },
        }
        self.documents: list[dict[str, Any]] = install.render(self.plane, values)

    def deployments(self) -> dict[str, dict[str, Any]]:
        """Return the pod specs of the chart's Deployments by component."""
        return {
            each["metadata"]["name"].removeprefix("bindery-"): each["spec"]["template"]["spec"]
            for each in self.documents
            if each["kind"] == "Deployment"
        }

    def install_webhook(self) -> None:
        """Apply the webhook's objects; the rest of the chart is there."""
        items = [
            each
            for each in self.documents
            if each["metadata"]["name"] == WEBHOOK and each["kind"] != "Deployment"
        ]
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        self.plane.kubectl(
            "apply", "--server-side", "--force-conflicts", "--filename=-", stdin=text
        )

    def start(self, pod: Pod) -> Container:
        """Start the container of `pod`."""
        container = Container(self.plane, pod, self.directory / pod.name)
        self.started.append(container)
        return container

    def start_component(self, name: str, spec: dict[str, Any], address: str = "") -> Container:
        """Start the pod of a component."""
        maps = {
            each["metadata"]["name"]: each["data"]
            for each in self.documents
            if each["kind"] == "ConfigMap"
        }
        return self.start(
            Pod(
                spec,
                install.NAMESPACE,
                f"bindery-{name}-0",
                address or loopback_address(),
                config_maps=maps,
            )
        )

    def check(self) -> None:
        """Check that no container has ended."""
        for each in self.started:
            assert each.process.is_running, each.process.error("has ended")

    def stop(self) -> None:
        """Stop all, and take the webhook's objects away."""
        kinds = "validatingwebhookconfigurations,mutatingwebhookconfigurations"
        self.plane.kubectl("delete", kinds, WEBHOOK, "--ignore-not-found")
        for container in self.started:
            container.process.stop()
        self.plane.kubectl(
            "delete", "secret", WEBHOOK, f"--namespace={install.NAMESPACE}", "--ignore-not-found"
        )


def loopback_address() -> str:
    """Return a random loopback address, so that no other process uses it."""
    return ".".join(["127", *(str(1 + secrets.randbelow(254)) for _ in range(3))])


@pytest.fixture(scope="module")
def pool() -> str:
    """The default pool, which the chart configures."""
    return ""


@pytest.fixture
def kubelet(installation: Installation, namespace: str, tmp_path: Path) -> Iterator[Kubelet]:
    require_container_tools()
    kubelet = Kubelet(installation, namespace, tmp_path, loopback_address())
    yield kubelet
    kubelet.stop()


def hollow_pod(spec: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Return the pod of a node agent, for which the chart has only an account."""
    container = {key: spec["containers"][0][key] for key in ("env", "securityContext")}
    arguments = ["nodeagent", "run", "--hollow=1", f"--name-prefix={prefix}-", "--remove-on-exit"]
    arguments += ["--listen-address=$(POD_IP)", "--health-port=8080"]
    return {
        **spec,
        "serviceAccountName": "bindery-nodeagent",
        "volumes": [],
        "containers": [{**container, "args": arguments}],
    }


async def test_every_component_of_the_chart_works_in_its_pod(
    corner: Corner, kubelet: Kubelet
) -> None:
    """The binder once looked up the name of its user; user 65532 has no name."""
    kubelet.install_webhook()
    specs = kubelet.deployments()
    assert set(specs) == {"scheduler", "binder", "grouper", "webhook"}
    for name, spec in specs.items():
        kubelet.start_component(name, spec, kubelet.webhook_address if name == "webhook" else "")
    kubelet.start_component("nodeagent", hollow_pod(specs["scheduler"], corner.namespace))
    for container in kubelet.started:
        container.wait_ready()

    gang = Gang("gang", 2)
    await corner.submit(gang)  # the webhook sees every pod, and may not fail
    with pytest.raises(ApiError, match="gpu-fraction must be above 0"):
        await corner.submit(Gang("refused", 1, annotations={"gpu-fraction": "2"}))
    maker = Maker(corner)
    await maker.create(JOBS, maker.job("train", 2))

    async def bound() -> bool:
        kubelet.check()
        in_job = sum(bool(pod.spec.node_name) for pod in await maker.pods("train"))
        return (await corner.bound_count(gang), in_job) == (2, 2)

    await wait_for(bound, "the gang and the Job are bound")
    kubelet.check()


async def test_a_reservation_pod_reports_its_gpu(corner: Corner, kubelet: Kubelet) -> None:
    node = (await corner.add_nodes("gpu"))[0]
    body = reservation(node, "group", GpuSharingArguments(), [])
    pod = body["metadata"]["name"]
    for amounts in body["spec"]["containers"][0]["resources"].values():
        amounts.pop("nvidia.com/gpu")  # nobody offers it here
    await corner.client.create(PODS, body, RESERVATION_NAMESPACE)
    try:
        kubelet.start(
            Pod(
                body["spec"],
                RESERVATION_NAMESPACE,
                pod,
                loopback_address(),
                environment={"NVIDIA_VISIBLE_DEVICES": DEVICE},
            )
        )

        async def reported() -> bool:
            kubelet.check()
            found = await corner.client.get(PODS, pod, RESERVATION_NAMESPACE)
            return found.metadata.annotations.get(INDEX_ANNOTATION) == DEVICE

        await wait_for(reported, "the pod says which GPU it has")
    finally:
        await corner.client.delete(PODS, pod, RESERVATION_NAMESPACE, grace_period_s=0)
