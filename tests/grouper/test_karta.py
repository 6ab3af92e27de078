"""Karta objects become rows, and paths that cannot be converted are named."""

from typing import Any

import pytest
import yaml

from bindery.api import yamlfile
from bindery.grouper.table import plan
from bindery.grouper.table.karta import KartaError, convert
from bindery.grouper.table.loading import Table, table_of
from tests.grouper.goldens import load_golden


def karta(components: str, gang: str, kind: str = "RayCluster", group: str = "ray.io") -> Any:
    root = {"name": "root", "kind": {"group": group, "version": "v1", "kind": kind}}
    structure = {"rootComponent": root, "childComponents": yaml.safe_load(components)}
    instructions = {"gangScheduling": yaml.safe_load(gang)}
    return {"spec": {"structureDefinition": structure, "instructions": instructions}}


def loaded(row: dict[str, Any]) -> Table:
    file = {"apiVersion": "scheduling.bindery.dev/v1alpha1", "kind": "GrouperTable", "rows": [row]}
    return table_of(yamlfile.parse(yaml.safe_dump(file), "imported.yaml"))


LWS = "leaderworkerset.sigs.k8s.io"
PRODUCT = ".spec.jobs[] | .replicas * .template.spec.parallelism"
RAY = """
- name: head
  specDefinition: {podTemplateSpecPath: .spec.headGroupSpec.template}
  scaleDefinition: {replicasPath: "1"}
  podSelector:
    componentTypeSelector: {keyPath: '.metadata.labels["ray.io/node-type"]', value: head}
- name: worker
  specDefinition: {podTemplateSpecPath: ".spec.workerGroupSpecs[].template"}
  scaleDefinition:
    replicasPath: .spec.workerGroupSpecs[].replicas // 1
    minReplicasPath: .spec.workerGroupSpecs[].minReplicas
  instanceIdPath: .spec.workerGroupSpecs[].groupName
  podSelector:
    componentTypeSelector: {keyPath: '.metadata.labels["ray.io/node-type"]', value: worker}
    componentInstanceSelector: {idPath: '.metadata.labels["ray.io/group"]'}
"""
BOTH = "podGroup: {name: job, subGroups: [{componentName: head}, {componentName: worker}]}"


def test_components_become_roles_that_group_pods() -> None:
    found = convert(karta(RAY, BOTH))

    assert found.notes == []
    golden = load_golden("raycluster")
    (group,) = plan(golden.owners, golden.pods, loaded(found.row)).groups
    parts = {part.name: (part.min_member, part.pod_labels) for part in group.spec.sub_groups}
    assert parts["head"] == (1, {"ray.io/node-type": "head"})
    assert parts["gpu"] == (2, {"ray.io/node-type": "worker", "ray.io/group": "gpu"})


def test_the_older_form_groups_pods_by_labels() -> None:
    gang = """
podGroups:
- name: group
  members:
  - componentName: group
    groupByKeyPaths:
    - .metadata.labels["leaderworkerset.sigs.k8s.io/name"]
    - .metadata.labels["leaderworkerset.sigs.k8s.io/group-index"] // "0"
"""
    group = "- {name: group, scaleDefinition: {replicasPath: .spec.leaderWorkerTemplate.size}}"

    found = convert(karta(group, gang, "LeaderWorkerSet", "leaderworkerset.x-k8s.io"))

    golden = load_golden("lws")
    groups = plan(golden.owners, golden.pods, loaded(found.row)).groups
    assert [(each.spec.min_member, len(each.pods)) for each in groups] == [(3, 3), (3, 3)]
    assert found.notes == [
        f"groups are told apart by {LWS}/group-index and the owner, not by {LWS}/name",
    ]


def test_a_topology_is_converted() -> None:
    gang = """
podGroup:
  topology: {topologyName: dc, requiredTopologyLevel: example.com/block}
  subGroups:
  - {componentName: head}
  - {componentName: worker, topology: {topologyName: dc, preferredTopologyLevel: example.com/rack}}
"""
    golden = load_golden("rayservice")

    groups = plan(golden.owners, golden.pods, loaded(convert(karta(RAY, gang)).row)).groups

    worker = next(p for g in groups for p in g.spec.sub_groups if p.name == "w")
    assert groups[0].spec.topology is not None
    assert groups[0].spec.topology.required == "example.com/block"
    assert worker.topology is not None
    assert (worker.topology.name, worker.topology.preferred) == ("dc", "example.com/rack")


def test_a_path_that_cannot_be_converted_is_named() -> None:
    components = f"""
- name: jobs
  scaleDefinition: {{replicasPath: "{PRODUCT}"}}
- name: other
  scaleDefinition: {{replicasPath: .spec.size, minReplicasPath: "(.a + .b)"}}
"""
    both = "podGroup: {subGroups: [{componentName: jobs}, {componentName: other}]}"

    found = convert(karta(components, both))

    assert found.row["count"] == "spec.size"
    assert found.notes == [
        f"the component jobs is left out: the path {PRODUCT} cannot be converted",
        "other: the path (.a + .b) cannot be converted",
    ]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "rootComponent.kind is missing"),
        ({"spec": karta("[]", "{}")["spec"]}, "no instructions for gang scheduling"),
        (
            {"spec": karta("[]", "{podGroups: [{name: a}, {name: b}]}")["spec"]},
            "it has 2 pod groups",
        ),
    ],
)
def test_an_object_without_a_gang_is_refused(given: Any, message: str) -> None:
    with pytest.raises(KartaError, match=message):
        convert(given)
