"""What Bindery writes and reads of other projects is as their published modules have it."""

import json
from pathlib import Path

import pytest
from operators import install_definitions

from bindery.api import podfingerprint
from bindery.controlplane import published
from bindery.controlplane.plane import ControlPlane

pytestmark = pytest.mark.e2e

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "workloads"
KINDS = (
    *("jobset", "leaderworkerset", "trainjob", "appwrapper"),
    *("pytorchjob", "tfjob", "xgboostjob", "jaxjob", "paddlejob"),
    *("raycluster", "rayjob", "rayservice"),
)


@pytest.fixture(scope="module")
def definitions(control_plane: ControlPlane) -> None:
    if control_plane.is_shared:
        pytest.skip("this cluster may have other versions of these kinds")
    install_definitions(control_plane, tuple(published.DEFINITIONS))


@pytest.mark.usefixtures("definitions")
@pytest.mark.parametrize("kind", KINDS)
def test_an_example_fits_the_definition_that_its_operator_publishes(
    kind: str, control_plane: ControlPlane, namespace: str
) -> None:
    file = EXAMPLES / f"{kind}.yaml"
    control_plane.kubectl(
        "create",
        "--dry-run=server",
        "--validate=strict",
        f"--namespace={namespace}",
        f"--filename={file}",
    )


def test_the_fingerprint_of_the_published_pods_is_the_published_one() -> None:
    file = published.POD_FINGERPRINT.fetch(print) / "pods.json"
    pods = [(pod["namespace"], pod["name"]) for pod in json.loads(file.read_bytes())]
    assert podfingerprint.sign(pods) == "pfp0v001e477a4e3b2fc0ec6"
