"""The CustomResourceDefinitions: they come from the models, and the API server holds to them."""

import filecmp
import json
from pathlib import Path
from typing import Any

import pytest

from bindery.api import crds, reference
from bindery.controlplane.errors import ControlPlaneError
from bindery.controlplane.plane import ControlPlane

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(f"{kind.kind_info.plural}.yaml" for kind in crds.KINDS)


@pytest.mark.parametrize("directory", ["crds", "charts/bindery/crds"])
def test_the_written_definitions_are_those_of_the_models(directory: str, tmp_path: Path) -> None:
    crds.write(tmp_path)

    assert sorted(path.name for path in (ROOT / directory).iterdir()) == FILES
    _, differing, broken = filecmp.cmpfiles(tmp_path, ROOT / directory, FILES, shallow=False)
    assert not differing, "the models changed: run `make crds`"
    assert not broken


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane) -> ControlPlane:
    control_plane.kubectl("apply", "--server-side", f"--filename={ROOT / 'crds'}")
    control_plane.kubectl(
        "wait", "--for=condition=Established", "--timeout=30s", f"--filename={ROOT / 'crds'}"
    )
    return control_plane


def create(
    cluster: ControlPlane, kind: str, spec: dict[str, Any], namespace: str = "", name: str = "it"
) -> dict[str, Any]:
    document = {
        "apiVersion": "scheduling.bindery.dev/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }
    scope = [f"--namespace={namespace}"] if namespace else []
    answer = cluster.kubectl(
        "create",
        "--validate=strict",
        "--output=json",
        "--filename=-",
        *scope,
        stdin=json.dumps(document),
    )
    created: dict[str, Any] = json.loads(answer)
    return created


@pytest.mark.e2e
def test_a_pod_group_gets_the_models_defaults(cluster: ControlPlane, namespace: str) -> None:
    created = create(cluster, "PodGroup", {}, namespace)

    assert created["spec"] == {"minMember": 1, "preemptionDelaySeconds": 0, "queue": "default"}


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("kind", "spec", "message"),
    [
        ("PodGroup", {"minMember": -1}, r"spec\.minMember.*greater than or equal to 0"),
        ("PodGroup", {"minMember": "two"}, r"spec\.minMember.*must be of type integer"),
        ("PodGroup", {"minMembers": 2}, r'unknown field "spec\.minMembers"'),
        (
            "PodGroup",
            {"expectedRuntimeSeconds": 0},
            r"spec\.expectedRuntimeSeconds.*greater than 0",
        ),
        ("Queue", {"resources": {"gpu": {"limit": "8 Gi"}}}, r"spec\.resources\.gpu\.limit"),
        ("Queue", {"resources": {"gpu": {"limit": "-3"}}}, r"spec\.resources\.gpu\.limit"),
        ("Queue", {"resources": {"gpu": {"limit": -3}}}, r"spec\.resources\.gpu\.limit"),
        ("Queue", {"resources": {"gpu": {"most": 8}}}, r"spec\.resources\.gpu\.most"),
        ("Queue", {"state": "Ajar"}, r'spec\.state.*"Open", "Closed"'),
        ("BindRequest", {"pods": [], "statement": {"id": "s"}}, r"spec\.pods.*at least 1"),
        ("BindRequest", {"statement": {"id": "s"}}, r"spec\.pods: Required value"),
    ],
)
def test_bad_input_is_refused_with_the_name_of_its_field(
    cluster: ControlPlane, namespace: str, kind: str, spec: dict[str, Any], message: str
) -> None:
    scope = "" if kind == "Queue" else namespace

    with pytest.raises(ControlPlaneError, match=message):
        create(cluster, kind, spec, scope)


@pytest.mark.e2e
@pytest.mark.parametrize("limit", [-1, 8, "-1", "8", "1500m", "64Gi", "1e3", "0.5", "5E", ".5"])
def test_quantities_are_taken_as_kubernetes_writes_them(
    cluster: ControlPlane, namespace: str, limit: int | str
) -> None:
    spec = {"resources": {"memory": {"limit": limit}}}

    created = create(cluster, "Queue", spec, name=namespace)

    cluster.kubectl("delete", "queue.scheduling.bindery.dev", namespace)
    assert created["spec"]["resources"]["memory"]["limit"] == limit


@pytest.mark.e2e
def test_what_a_plugin_hands_over_is_kept_as_it_is(cluster: ControlPlane, namespace: str) -> None:
    data = {"volumes": {"claims": [{"name": "scratch"}]}}
    pod = {"podName": "a", "podUID": "1", "selectedNode": "n", "pluginData": data}

    created = create(cluster, "BindRequest", {"pods": [pod], "statement": {"id": "s"}}, namespace)

    assert created["spec"]["pods"][0]["pluginData"] == data


def test_the_page_of_configuration_keys_is_the_models() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")

    assert page == reference.page(), "the models changed: run `make crds`"
