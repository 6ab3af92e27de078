"""The CustomResourceDefinitions: generated from the models, and enforced by the API server."""

import filecmp
from pathlib import Path
from typing import Any

import pytest

from bindery.api.names import API_VERSION, GROUP
from bindery.kube.errors import ApiError
from bindery.kube.objects import definitions
from bindery.kube.objects.resources import Resource
from devcluster.plane import ControlPlane
from tests.administrator import Administrator, Plain
from tests.house import configurationreference

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(f"{kind.kind_info.plural}.yaml" for kind in definitions.KINDS)


@pytest.mark.parametrize("directory", ["crds", "charts/bindery/crds"])
def test_the_committed_definitions_are_generated_from_the_models(
    directory: str, tmp_path: Path
) -> None:
    definitions.write(tmp_path)

    assert sorted(path.name for path in (ROOT / directory).iterdir()) == FILES
    _, differing, broken = filecmp.cmpfiles(tmp_path, ROOT / directory, FILES, shallow=False)
    assert not differing, "the models changed: run `make crds`"
    assert not broken


POD = {"podName": "a", "podUID": "1", "selectedNode": "n"}
STATEMENTS = {"statements": [{"id": "s", "pods": [POD]}]}
NO_STATEMENTS = "statements must be given"

ONE_SELECTOR = "exactly one of controller, annotation, label, schedulingGroup, pod must be given"


class DryRun(Resource[Plain]):
    """A kind of which objects are checked as `kubectl create --validate=strict` does, not kept."""

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        return f"{super().path(namespace, name, subresource)}?dryRun=All&fieldValidation=Strict"


KINDS = {
    kind.__name__: DryRun(
        GROUP,
        API_VERSION.rpartition("/")[2],
        kind.kind_info.plural,
        kind.__name__,
        kind.kind_info.namespaced,
        Plain,
    )
    for kind in definitions.KINDS
}


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane) -> Administrator:
    """The administrator of an API server that has the definitions."""
    control_plane.kubectl("apply", "--server-side", f"--filename={ROOT / 'crds'}")
    control_plane.kubectl(
        "wait", "--for=condition=Established", "--timeout=30s", f"--filename={ROOT / 'crds'}"
    )
    return Administrator(control_plane.admin_kubeconfig)


def create(cluster: Administrator, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Let the API server check and complete an object; return its spec then."""
    document = {
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": {"name": "it"},
        "spec": spec,
    }
    place = "default" if KINDS[kind].namespaced else ""
    created: dict[str, Any] = cluster(
        lambda client: client.create(KINDS[kind], document, place)
    ).spec
    return created


@pytest.mark.e2e
def test_a_pod_group_gets_the_defaults_of_the_model(cluster: Administrator) -> None:
    created = create(cluster, "PodGroup", {})

    assert created == {"minMember": 1, "preemptionDelaySeconds": 0}


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
        ("Topology", {"levels": []}, r"spec\.levels.*at least 1"),
        ("HyperNode", {"tier": 0}, r"spec\.tier.*greater than or equal to 1"),
        ("HyperNode", {"tier": 1, "members": [{"type": "Rack"}]}, r'"Node", "HyperNode"'),
        (
            "PodGroup",
            {"topology": {"required": "rack", "segments": {"size": 0}}},
            r"spec\.topology\.segments\.size.*greater than or equal to 1",
        ),
        (
            "PodGroup",
            {"subGroups": [{"name": "s", "topology": {"mode": "soft-ish"}}]},
            r'topology\.mode.*"hard", "soft"',
        ),
        ("PodGroup", {"members": [{}]}, ONE_SELECTOR),
        ("PodGroup", {"members": [{"podLabels": {"a": "b"}}]}, ONE_SELECTOR),
        ("PodGroup", {"members": [{"pod": "1", "controller": "2"}]}, ONE_SELECTOR),
        ("PodGroup", {"members": [{"label": {"key": "a"}}]}, r"members\[0\]\.label\.value"),
        (
            "PodGroup",
            {"subGroups": [{"name": "b", "after": [{"subGroup": "a", "condition": "Started"}]}]},
            r'after\[0\]\.condition.*"Ready", "Complete", "Bound"',
        ),
        ("BindRequest", {"pods": [POD], **STATEMENTS}, r'unknown field "spec\.pods"'),
        ("BindRequest", {}, NO_STATEMENTS),
        ("BindRequest", {"fencingToken": 0}, NO_STATEMENTS),
        ("BindRequest", {"statements": [{"id": "s"}]}, r"statements\[0\]\.pods"),
        ("BindRequest", {"statements": []}, r"spec\.statements.*at least 1"),
        ("BindRequest", {"statements": [{"id": "s", "pods": []}]}, r"pods.*at least 1"),
    ],
)
def test_invalid_input_is_refused_with_the_name_of_its_field(
    cluster: Administrator, kind: str, spec: dict[str, Any], message: str
) -> None:
    with pytest.raises(ApiError, match=message):
        create(cluster, kind, spec)


@pytest.mark.e2e
def test_the_template_of_a_stage_is_stored_unchanged(cluster: Administrator) -> None:
    container = {"name": "main", "image": "train", "ports": [{"containerPort": 1}]}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}
    stage = {"name": "node", "after": [{"subGroup": "init", "condition": "Complete"}]}
    member = {"controller": "1", "podLabels": {"a": "b"}}

    created = create(
        cluster, "PodGroup", {"members": [member], "subGroups": [{**stage, "template": template}]}
    )

    assert created["members"] == [member]
    assert created["subGroups"] == [{**stage, "template": template}]


@pytest.mark.e2e
@pytest.mark.parametrize("limit", [-1, 8, "-1", "8", "1500m", "64Gi", "1e3", "0.5", "5E", ".5"])
def test_quantities_of_kubernetes_are_accepted(cluster: Administrator, limit: int | str) -> None:
    spec = {"resources": {"memory": {"limit": limit}}}

    created = create(cluster, "Queue", spec)

    assert created["resources"]["memory"]["limit"] == limit


@pytest.mark.e2e
def test_plugin_data_is_stored_unchanged(cluster: Administrator) -> None:
    data = {"volumes": {"claims": [{"name": "scratch"}]}}
    pod = {"podName": "a", "podUID": "1", "selectedNode": "n", "pluginData": data}

    created = create(cluster, "BindRequest", {"statements": [{"id": "s", "pods": [pod]}]})

    assert created["statements"][0]["pods"][0]["pluginData"] == data


@pytest.mark.e2e
def test_a_bind_request_with_only_a_fencing_token_is_accepted(cluster: Administrator) -> None:
    created = create(cluster, "BindRequest", {"fencingToken": 3})

    assert created == {"fencingToken": 3, "backoffLimit": 5}


def test_the_page_of_configuration_keys_is_generated_from_the_models() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")

    assert page == configurationreference.page(), "the models changed: run `make crds`"
