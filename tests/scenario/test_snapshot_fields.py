"""Fields omitted from a snapshot: none that planning reads, and all that may be secret."""

import types
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Union, get_args, get_origin

import msgspec
import pytest

from bindery.api.configuration import SchedulerConfiguration
from bindery.api.yamlfile import parse
from bindery.kube.objects import podspec, watched
from bindery.kube.watches.decoding import LenientDecoder
from bindery.scenario.snapshot import DROPPED, pruned, snapshot_text
from tests.scenario.snapshots import RESOURCES

STRUCTS: dict[str, type[msgspec.Struct]] = {
    "metadata": watched.Meta,
    "pod": podspec.PodSpec,
    "container": podspec.Container,
    "container status": watched.ContainerStatus,
    "pod status": watched.PodStatus,
    "node": watched.NodeSpec,
    "node status": watched.NodeStatus,
}
SECRET = "hunter2"
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "p",
        "namespace": "default",
        "managedFields": [{"manager": SECRET}],
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": SECRET, "kept": "yes"},
    },
    "spec": {
        "newField": "stays",
        "containers": [
            {
                "name": "main",
                "image": "train:1",
                "args": [SECRET],
                "env": [{"name": "PASSWORD", "value": SECRET}],
                "resources": {"requests": {"cpu": "1"}},
                "volumeMounts": [{"name": "s", "mountPath": SECRET}],
            }
        ],
        "volumes": [
            {"name": "s", "secret": {"secretName": SECRET}},
            {"name": "d", "rbd": {"pool": "p", "image": "i", "secretRef": {"name": SECRET}}},
        ],
    },
    "status": {"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [{"imageID": SECRET}]},
}


def structs(kind: Any) -> Iterator[type[msgspec.Struct]]:
    """Yield the structs below a type."""
    if get_origin(kind) in (Union, types.UnionType) or get_args(kind):
        for each in get_args(kind):
            yield from structs(each)
    elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
        for field in msgspec.structs.fields(kind):
            yield from structs(field.type)


@pytest.mark.parametrize("part", sorted(STRUCTS))
def test_no_field_that_the_watches_decode_is_omitted(part: str) -> None:
    read = {field.encode_name for field in msgspec.structs.fields(STRUCTS[part])}

    assert not read & DROPPED[part]


def test_no_struct_has_a_field_that_is_omitted_everywhere() -> None:
    seen = {each for kind in RESOURCES for each in structs(kind)}
    names = {field.encode_name for each in seen for field in msgspec.structs.fields(each)}

    assert podspec.Container in seen
    assert not names & DROPPED["volume source"]
    assert not [name for name in names if name.lower().endswith(("secretref", "secretname"))]


def test_secrets_are_omitted_and_unknown_fields_are_kept() -> None:
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}}
    template = {**job, "spec": {"template": {"spec": POD["spec"]}}}
    text = snapshot_text([POD, template], SchedulerConfiguration(), datetime.now(UTC))

    assert SECRET not in text
    (found, _) = pruned([POD, template])
    assert found["metadata"]["annotations"] == {"kept": "yes"}
    assert found["spec"]["newField"] == "stays"
    assert found["spec"]["volumes"] == [{"name": "d", "rbd": {"pool": "p", "image": "i"}}]
    assert found["status"] == {"phase": "Running", "containerStatuses": [{}]}


def test_images_that_no_pod_uses_are_omitted() -> None:
    names = ["train:1"], ["other:1"], ["later:latest"], ["data:2"]
    images = [{"names": each, "sizeBytes": 5} for each in names]
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {}, "status": {"images": images}}

    template = {"containers": [{"image": "later"}], "volumes": [{"image": {"reference": "data:2"}}]}
    group = {"kind": "PodGroup", "spec": {"subGroups": [{"template": {"spec": template}}]}}

    (_, _, found) = pruned([POD, group, node])

    assert found["status"]["images"] == [images[0], *images[2:]]


def test_the_text_is_yaml_with_any_content_of_objects() -> None:
    odd = "é\x7f\x80\ufeff\u2028😀\n\"'"
    item = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": {"a": odd}}}
    text = snapshot_text([item], SchedulerConfiguration(), datetime.now(UTC))
    as_yaml = text.replace("\n- {", "\n-\n  {")  # not read as lines of JSON

    for each in (text, as_yaml):
        (document,) = parse(each, "snapshot.yaml")
        assert isinstance(document.data, dict)
        assert document.data["objects"] == [item]


def test_a_pod_is_decoded_alike_from_its_snapshot_and_the_cluster() -> None:
    decoder = LenientDecoder(RESOURCES_BY_KIND["Pod"])

    pages = [msgspec.json.encode({"items": each}) for each in ([POD], list(pruned([POD])))]
    before, after = (next(iter(decoder.page(page).items or ())) for page in pages)

    assert isinstance(before, watched.Pod)
    assert isinstance(after, watched.Pod)
    assert after.spec.containers[0].resources == before.spec.containers[0].resources
    assert after.status.phase == before.status.phase


RESOURCES_BY_KIND = {each.type.__name__: each for each in RESOURCES.values()}
