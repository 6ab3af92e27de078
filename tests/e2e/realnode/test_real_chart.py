"""The chart as users install it: pods by helm, placed by kube-scheduler, run by kubelets.

The tests are one story, in this order. The others on real nodes come after it, as they apply the
chart's resources themselves.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from bindery.api.hami import names
from bindery.api.hami.vendortable import NVIDIA
from bindery.nodeagent.gpuclaims.slices import DRIVER
from devcluster import settings
from devcluster.errors import ControlPlaneError
from devcluster.image.build import Built, build
from devcluster.processes import Command
from devcluster.realnode.cluster import RealCluster
from devcluster.realnode.configuration import RUNTIME_SOCKET, SHARED
from tests.debianpackages import require_packages
from tests.definitions import install_node_topologies
from tests.e2e.realnode.releases import NAMESPACE, PODS, QUEUE, Release, job, queue, until

pytestmark = pytest.mark.e2e

COMPONENTS = ("binder", "grouper", "scheduler", "webhook")
KEPT = (
    "apiservice.apiregistration.k8s.io/v1alpha1.scheduling.bindery.dev",
    "customresourcedefinition.apiextensions.k8s.io/",
    # What the binder must still know if Bindery is installed again.
    "bindrequest.scheduling.bindery.dev/bindery-scheduler-term-",
    # The drivers of other tests on the same nodes publish theirs again, under new names.
    "resourceslice.resource.k8s.io/",
    # Reports belong to their Nodes, and an agent may write one more before it ends.
    "noderesourcetopology.topology.node.k8s.io/",
)
"""What helm keeps by its rules: the definitions, and objects of these kinds."""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Built:
    require_packages()
    return build("bindery:0.1.0", tmp_path_factory.mktemp("image"), print)


@pytest.fixture(scope="module")
def kube_scheduler(
    cluster: RealCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Places the chart's own pods."""
    plane, directory = cluster.control_plane, tmp_path_factory.mktemp("kube-scheduler")
    file = directory / "configuration.yaml"
    file.write_text(settings.kube_scheduler(plane.admin_kubeconfig), encoding="utf-8")
    program = str(plane.binaries.kube_scheduler)
    command = [program, f"--config={file}", "--secure-port=0"]
    log = directory / "kube-scheduler.log"
    process = plane.start_process(Command("kube-scheduler", command, log), tethered=True)
    yield
    process.stop()


@pytest.fixture(scope="module")
def release(cluster: RealCluster, image: Built, kube_scheduler: None) -> Iterator[Release]:
    for node in cluster.nodes.values():
        node.load(image.archive)
    image.archive.unlink()
    release = Release(cluster.control_plane)
    yield release
    cluster.control_plane.kubectl("delete", "namespace", NAMESPACE)
    for node in cluster.nodes.values():
        socket = f"--address={RUNTIME_SOCKET}"
        node.run(
            "ctr",
            socket,
            "--namespace=k8s.io",
            "images",
            "rm",
            f"docker.io/library/{image.image.name}",
        )


@pytest.fixture(scope="module")
def before(release: Release) -> set[str]:
    """All objects of the cluster before the chart is installed."""
    install_node_topologies(release.plane)
    return release.objects()


def test_the_components_run_as_the_charts_pods_and_schedule_a_gang(
    release: Release, before: set[str]
) -> None:
    release.install()
    release.plane.kubectl("create", "--filename=-", stdin=json.dumps(queue()))
    release.submit("first")
    release.wait_complete("first")

    pods = release.pods()
    assert sorted(pod["spec"]["serviceAccountName"] for pod in pods) == [
        f"bindery-{component}" for component in COMPONENTS for _ in range(2)
    ]
    for pod in pods:
        (status,) = pod["status"]["containerStatuses"]
        assert status["restartCount"] == 0, pod["metadata"]["name"]
        assert status["user"]["linux"]["uid"] == 65532
    assert {pod["spec"]["schedulerName"] for pod in release.pods("default")} == {"bindery"}


def test_the_webhook_is_called_through_its_service(release: Release) -> None:
    senseless = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "senseless", "annotations": {"gpu-fraction": "much"}},
        "spec": {
            "schedulerName": "bindery",
            "containers": [{"name": "worker", "image": "worker"}],
        },
    }

    with pytest.raises(ControlPlaneError, match=r"admission webhook.*gpu-fraction"):
        release.plane.kubectl(
            "create", "--filename=-", "--namespace=default", stdin=json.dumps(senseless)
        )


def test_helm_test_passes_when_all_components_work(release: Release) -> None:
    known = release.objects()

    output = release.helm("test", "bindery")

    assert "Phase:          Succeeded" in output
    assert {each for each in release.objects() - known if not each.startswith("lease.")} == set()


@pytest.mark.long("Deployments move their pods")
def test_draining_a_node_moves_the_components_and_gangs_continue(release: Release) -> None:
    release.submit("drained-1", "drained-2")

    release.plane.kubectl(
        "drain", "node-1", "--ignore-daemonsets", "--delete-emptydir-data", "--force",
        "--timeout=120s", timeout_s=130,
    )  # fmt: skip
    release.submit("drained-3")

    try:
        release.wait_complete("drained-3")
        nodes = {pod["spec"].get("nodeName") for pod in release.pods()}
        assert nodes <= {"node-2", None}
    finally:
        release.plane.kubectl("uncordon", "node-1")
    until(lambda: all_ready(release), "all components are ready again")


@pytest.mark.long("more than a minute")
def test_an_upgrade_while_gangs_run_loses_and_duplicates_no_pods(release: Release) -> None:
    names = [f"upgraded-{number}" for number in range(6)]
    old = {pod["metadata"]["uid"] for pod in release.pods()}
    release.submit(*names[:3])

    release.upgrade("scheduler.configuration.cycleSeconds=0.5", 'binder.environment.CHANGED="yes"')
    release.submit(*names[3:])
    release.wait_complete(*names)

    new = [pod for pod in release.pods() if pod["metadata"]["uid"] not in old]
    replaced = {pod["spec"]["serviceAccountName"] for pod in new}
    assert replaced >= {"bindery-binder", "bindery-scheduler"}
    for name in names:
        pods = release.pods("default", f"job-name={name}")
        assert [pod["status"]["phase"] for pod in pods] == ["Succeeded"] * PODS
    webhooks = "validatingwebhookconfigurations,mutatingwebhookconfigurations"
    path = "--output=jsonpath={.items[*].webhooks[*].clientConfig.caBundle}"
    assert release.plane.kubectl("get", webhooks, path)


@pytest.mark.long("the next one serves the GPUs of a file too")
def test_the_daemonset_reports_about_each_node_and_serves_the_gpus_of_a_file(
    release: Release, cluster: RealCluster
) -> None:
    # The kubelets of these nodes have their configuration elsewhere, and no NUMA policy.
    beside = {
        "enabled": True,
        "kubeletConfig": "/node/kubelet.yaml",
        "devices": {"file": f"{SHARED}/gpus.json"},
        "claims": {"enabled": True},
    }
    for name, node in cluster.nodes.items():
        gpus = [{"uuid": f"GPU-{name}", "memoryMib": 1000}]
        (node.shared / "gpus.json").write_text(json.dumps({"gpus": gpus}))

    release.upgrade(f"beside={json.dumps(beside)}")

    def reports() -> dict[str, Any]:
        text = release.plane.kubectl("get", "noderesourcetopologies", "--output=json")
        return {each["metadata"]["name"]: each for each in json.loads(text)["items"]}

    def offered() -> set[str]:
        text = release.plane.kubectl("get", "resourceslices", "--output=json")
        specs = [each["spec"] for each in json.loads(text)["items"]]
        return {
            one["name"] for spec in specs if spec["driver"] == DRIVER for one in spec["devices"]
        }

    try:
        until(lambda: {"node-1", "node-2"} <= reports().keys(), "both nodes have reports")
        for name in ("node-1", "node-2"):
            attributes = {one["name"]: one["value"] for one in reports()[name]["attributes"]}
            assert attributes["topologyManagerPolicy"] == "none"
        until(lambda: all(map(is_ready, release.pods("bindery-beside"))), "all pods are ready")
        for pod in release.pods("bindery-beside"):
            (status,) = pod["status"]["containerStatuses"]
            assert status["restartCount"] == 0
            (mount, *_) = pod["spec"]["containers"][0]["volumeMounts"]
            assert (mount["mountPath"], mount["readOnly"]) == ("/var/lib/kubelet", True)
        until(lambda: offered() == {"gpu-node-1", "gpu-node-2"}, "both nodes offer their GPUs")
        release.plane.kubectl("get", "deviceclass", "gpu-share")
    finally:
        release.plane.kubectl("delete", "noderesourcetopologies", "--all")


def test_the_daemonset_shares_the_gpus_of_a_file_with_a_job(
    release: Release, cluster: RealCluster
) -> None:
    """The kubelet calls the plugin in the DaemonSet's pod, and the job prints what it got."""
    beside = {
        "enabled": True,
        "kubeletConfig": "/node/kubelet.yaml",
        "devices": {"file": f"{SHARED}/gpus.json"},
        "claims": {"enabled": False},
        "shares": {"enabled": True, "splitCount": 3},
    }
    for name, node in cluster.nodes.items():
        gpus = [{"uuid": f"GPU-{name}", "memoryMib": 10_000}]
        (node.shared / "gpus.json").write_text(json.dumps({"gpus": gpus}))
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "30"}
    body = job("sharer", 1, "env", limits)

    release.upgrade(f"beside={json.dumps(beside)}")

    def offered() -> list[str]:
        path = r"--output=jsonpath={.items[*].status.allocatable.nvidia\.com/gpu}"
        return release.plane.kubectl("get", "nodes", path).split()

    try:
        until(lambda: offered() == ["3", "3"], "both nodes offer three shares")
        release.plane.kubectl("create", "--filename=-", stdin=json.dumps(body))
        release.wait_complete("sharer")
        (done,) = release.pods("default", "job-name=sharer")
        printed = release.plane.kubectl("logs", "job/sharer", "--namespace=default").splitlines()
        annotations = done["metadata"]["annotations"]
        assert f"NVIDIA_VISIBLE_DEVICES=GPU-{done['spec']['nodeName']}" in printed
        assert {"CUDA_DEVICE_MEMORY_LIMIT_0=3000m", "CUDA_DEVICE_SM_LIMIT=30"} <= set(printed)
        assert annotations["hami.io/bind-phase"] == "success"
        assert annotations[names.ISOLATION] == "none"
        locks = r"--output=jsonpath={.items[*].metadata.annotations.hami\.io/mutex\.lock}"
        assert release.plane.kubectl("get", "nodes", locks) == ""
    finally:
        release.plane.kubectl("annotate", "nodes", "--all", f"{NVIDIA.register_key}-")


def test_uninstall_leaves_only_the_custom_resource_definitions(
    release: Release, before: set[str]
) -> None:
    release.plane.kubectl("delete", "jobs", "--all", "--namespace=default")
    release.plane.kubectl("delete", "podgroups", "--all", "--namespace=default")
    until(lambda: queue_is_deleted(release), "the queue is empty and deleted")

    release.helm("uninstall", "bindery", "--wait")

    def left() -> set[str]:
        return {each for each in release.objects() - before if not each.startswith(KEPT)}

    try:
        # The kubelet deletes the slices of a driver that is gone after half a minute.
        until(lambda: not left(), "nothing is left", timeout_s=150)
    finally:
        assert left() == set()
    assert {each for each in before - release.objects() if not each.startswith(KEPT)} == set()


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Return whether all containers of the pod are ready."""
    return all(each["ready"] for each in pod["status"]["containerStatuses"])


def queue_is_deleted(release: Release) -> bool:
    """Delete the queue; the webhook refuses it while a gang counts there."""
    try:
        release.plane.kubectl("delete", "queue", QUEUE, "--ignore-not-found")
    except ControlPlaneError:
        return False
    return True


def all_ready(release: Release) -> bool:
    pods = release.pods()
    return len(pods) == 2 * len(COMPONENTS) and all(
        {"type": "Ready", "status": "True"}.items() <= condition.items()
        for pod in pods
        for condition in pod["status"].get("conditions", ())
        if condition["type"] == "Ready"
    )
