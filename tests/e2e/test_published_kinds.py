"""Objects of other projects fit the definitions that the projects publish."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bindery.api import podfingerprint
from devcluster import published
from devcluster.plane import ControlPlane
from tests.e2e.operators import install_definitions
from tests.required import lacking

pytestmark = pytest.mark.e2e

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "workloads"
MPI = "MPI operator"
KINDS = (
    *("jobset", "leaderworkerset", "trainjob", "appwrapper"),
    *("pytorchjob", "tfjob", "xgboostjob", "jaxjob", "paddlejob"),
    *("raycluster", "rayjob", "rayservice"),
)


@pytest.fixture(scope="module")
def definitions(control_plane: ControlPlane) -> None:
    if control_plane.is_shared:
        lacking("this cluster may have other versions of these kinds")
    install_definitions(control_plane, [name for name in published.DEFINITIONS if name != MPI])


@pytest.fixture
def mpi_definition(definitions: None, control_plane: ControlPlane) -> Iterator[None]:
    """Replace the training operator's MPIJob by the MPI operator's for a test."""
    control_plane.kubectl("delete", "crd", "mpijobs.kubeflow.org", "--ignore-not-found")
    install_definitions(control_plane, [MPI])
    yield
    control_plane.kubectl("delete", "crd", "mpijobs.kubeflow.org")


@pytest.mark.usefixtures("mpi_definition")
def test_the_example_of_an_mpi_job_fits_the_definition_of_the_mpi_operator(
    control_plane: ControlPlane, namespace: str
) -> None:
    check("mpijob", control_plane, namespace)


@pytest.mark.usefixtures("definitions")
@pytest.mark.parametrize("kind", KINDS)
def test_each_example_fits_the_published_definition_of_its_operator(
    kind: str, control_plane: ControlPlane, namespace: str
) -> None:
    check(kind, control_plane, namespace)


def check(kind: str, control_plane: ControlPlane, namespace: str) -> None:
    file = EXAMPLES / f"{kind}.yaml"
    control_plane.kubectl(
        "create",
        "--dry-run=server",
        "--validate=strict",
        f"--namespace={namespace}",
        f"--filename={file}",
    )


def test_the_fingerprint_of_the_published_pods_equals_the_published_fingerprint() -> None:
    file = published.POD_FINGERPRINT.fetch(print) / "pods.json"
    pods = [(pod["namespace"], pod["name"]) for pod in json.loads(file.read_bytes())]
    assert podfingerprint.sign(pods) == "pfp0v001e477a4e3b2fc0ec6"
