"""The chart's resources on a real API server: what each component may do, and what not."""

import pytest
import yaml

from bindery.controlplane.errors import ControlPlaneError
from bindery.controlplane.install import Installation, install, render
from bindery.controlplane.plane import ControlPlane

pytestmark = pytest.mark.e2e


def may(installation: Installation, component: str, verb: str, resource: str, scope: str) -> bool:
    """Ask the API server, under the component's own token."""
    plane = installation.control_plane
    command = [str(plane.kubectl_path), f"--kubeconfig={installation.kubeconfigs[component]}"]
    kind, _, subresource = resource.partition("/")
    question = ["auth", "can-i", verb, kind, f"--subresource={subresource}", scope]
    try:
        plane.run([*command, *question])
    except ControlPlaneError as error:
        assert str(error).strip() == "kubectl: no", error  # noqa: PT017  the answer, by exit code
        return False
    return True


EVERYWHERE = "--all-namespaces"
OWN = "--namespace=bindery-system"


@pytest.mark.parametrize(
    ("component", "verb", "resource", "scope"),
    [
        ("scheduler", "create", "bindrequests.scheduling.bindery.dev", EVERYWHERE),
        ("scheduler", "patch", "podgroups.scheduling.bindery.dev/status", EVERYWHERE),
        ("scheduler", "patch", "pods/status", EVERYWHERE),
        ("scheduler", "create", "pods/eviction", EVERYWHERE),
        ("scheduler", "create", "leases.coordination.k8s.io", OWN),
        ("binder", "create", "pods/binding", EVERYWHERE),
        ("binder", "patch", "bindrequests.scheduling.bindery.dev/status", EVERYWHERE),
        ("nodeagent", "create", "nodes", EVERYWHERE),
        ("nodeagent", "patch", "leases.coordination.k8s.io", "--namespace=kube-node-lease"),
    ],
)
def test_a_component_may_do_its_work(
    installation: Installation, component: str, verb: str, resource: str, scope: str
) -> None:
    assert may(installation, component, verb, resource, scope)


@pytest.mark.parametrize(
    ("component", "verb", "resource", "scope"),
    [
        ("scheduler", "create", "pods/binding", EVERYWHERE),
        ("scheduler", "patch", "bindrequests.scheduling.bindery.dev/status", EVERYWHERE),
        ("scheduler", "delete", "pods", EVERYWHERE),
        ("scheduler", "patch", "pods", EVERYWHERE),
        ("scheduler", "update", "leases.coordination.k8s.io", "--namespace=kube-node-lease"),
        ("binder", "create", "bindrequests.scheduling.bindery.dev", EVERYWHERE),
        ("binder", "patch", "podgroups.scheduling.bindery.dev/status", EVERYWHERE),
        ("binder", "create", "pods/eviction", EVERYWHERE),
        ("binder", "get", "secrets", EVERYWHERE),
        ("nodeagent", "create", "pods/binding", EVERYWHERE),
        ("nodeagent", "get", "bindrequests.scheduling.bindery.dev", EVERYWHERE),
    ],
)
def test_a_component_may_not_do_the_work_of_another(
    installation: Installation, component: str, verb: str, resource: str, scope: str
) -> None:
    assert not may(installation, component, verb, resource, scope)


def test_an_installation_can_be_repeated(installation: Installation) -> None:
    again = install(installation.control_plane)

    listed = again.control_plane.kubectl("get", "priorityclasses", "-o", "yaml")
    values = {item["metadata"]["name"]: item["value"] for item in yaml.safe_load(listed)["items"]}
    builtin = {"train": 50, "build-preemptible": 75, "build": 100, "inference": 125}
    assert builtin.items() <= values.items()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"schedulr": {}}, "'schedulr' not allowed"),
        ({"scheduler": {"configuration": {"cycleSecond": 1}}}, "'cycleSecond' not allowed"),
        ({"scheduler": {"configuration": {"bindRequest": {"maxPods": 501}}}}, "maxPods"),
        ({"binder": {"replicas": -1}}, "replicas"),
        ({"hollow": {"enabled": "yes"}}, "hollow/enabled"),
    ],
)
def test_wrong_values_are_refused_with_the_name_of_their_key(
    control_plane: ControlPlane, values: dict[str, object], message: str
) -> None:
    with pytest.raises(ControlPlaneError, match=message):
        render(control_plane, values)


def test_the_api_server_takes_the_deployments_under_the_restricted_standard(
    control_plane: ControlPlane, namespace: str
) -> None:
    """Warnings of the namespace's security standard are errors of this test."""
    control_plane.kubectl(
        "label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted"
    )
    deployments = [
        document for document in render(control_plane, {}) if document["kind"] == "Deployment"
    ]

    assert len(deployments) == 3  # the scheduler, the binder, the webhook
    for deployment in deployments:
        spec = deployment["spec"]
        assert isinstance(spec, dict)
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": spec["template"]["spec"]["containers"][0]["name"]},
            "spec": {**spec["template"]["spec"], "serviceAccountName": "default"},
        }
        control_plane.kubectl(
            "create",
            "--dry-run=server",
            "--validate=strict",
            "--filename=-",
            f"--namespace={namespace}",
            stdin=yaml.safe_dump(pod),
        )
