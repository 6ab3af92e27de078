"""The examples of docs/topology.md are accepted by the API server and the scheduler."""

import re
from pathlib import Path

import yaml

from bindery.api.base import ApiModel
from bindery.kube.objects import definitions
from bindery.kube.objects.models import model_of
from bindery.kube.objects.podgroups import TopologyConstraint

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "topology.md").read_text(encoding="utf-8")
KINDS = {kind.kind_info.kind: kind for kind in definitions.KINDS}


def examples() -> list[ApiModel]:
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    documents = [document for block in blocks for document in yaml.safe_load_all(block)]
    return [
        model_of(KINDS[document["kind"]]).model_validate({"spec": document["spec"]})
        for document in documents
    ]


def test_every_example_is_an_object_of_its_kind() -> None:
    kinds = [type(example).__name__ for example in examples()]

    assert kinds == ["Topology", "HyperNode", "HyperNode", "PodGroup"]


def test_every_field_of_a_constraint_is_explained() -> None:
    for name in TopologyConstraint.__struct_encode_fields__:
        assert f"| `{name}` |" in PAGE
