"""The custom resources are declared twice, and both declarations agree.

`bindery.api` has the full models, from which the CustomResourceDefinitions come.
`bindery.kube.objects.watched` has the quick ones, by which watches are decoded. A field that has
another name in one of them would be dropped without an error.
"""

import types
import typing
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec import NODEFAULT, structs
from pydantic import BaseModel

from bindery.api.bindrequest import BindRequest
from bindery.api.podgroup import PodGroup
from bindery.api.queue import Queue
from bindery.api.topology import HyperNode, Topology
from bindery.kube.objects import bindrequests, topology
from bindery.kube.objects import watched as objects

FOR_PEOPLE_ALONE = {
    "BindRequest.spec.summary",
    "BindRequest.spec.summary.gangs",
    "BindRequest.spec.summary.pods",
    "BindRequest.spec.summary.nodes",
    "BindRequest.status.boundCount",
}
"""Columns of `kubectl get`: written, and read by no component."""

FREE_FORM = {"PodGroup.spec.subGroups.template.spec"}
"""Objects of Kubernetes: the schema keeps them whole, and a watch decodes what is read of them."""

TWINS = [
    (PodGroup, objects.PodGroup),
    (Queue, objects.Queue),
    (BindRequest, bindrequests.BindRequest),
    (Topology, topology.Topology),
    (HyperNode, topology.HyperNode),
]


@pytest.mark.parametrize(("model", "struct"), TWINS, ids=lambda kind: kind.__name__)
def test_both_have_the_same_fields(model: type[BaseModel], struct: type[msgspec.Struct]) -> None:
    of_model = {path for part in ("spec", "status") for path, _ in fields_of(model, part)}
    of_struct = {path for part in ("spec", "status") for path, _ in fields_of(struct, part)}

    assert of_struct <= of_model, "dropped by the API server: no such field in the schema"
    assert of_model - of_struct <= FOR_PEOPLE_ALONE, "dropped when a watch is decoded"


@pytest.mark.parametrize(("model", "struct"), TWINS, ids=lambda kind: kind.__name__)
def test_what_a_spec_leaves_out_means_the_same_to_both(
    model: type[BaseModel], struct: type[msgspec.Struct]
) -> None:
    of_model = dict(fields_of(model, "spec"))
    of_struct = dict(fields_of(struct, "spec"))

    shared = of_model.keys() & of_struct.keys()
    assert {path: of_struct[path] for path in shared} == {path: of_model[path] for path in shared}


def test_a_pod_group_has_fields_at_every_depth() -> None:
    paths = dict(fields_of(PodGroup, "spec"))

    assert paths["PodGroup.spec.minMember"] == 1
    assert "PodGroup.spec.subGroups.minSubGroup" in paths


def fields_of(kind: Any, part: str) -> Iterator[tuple[str, Any]]:
    """Yield the path and the default of each field below `part`, by the names on the wire."""
    for name, annotation, _ in declared(kind):
        if name == part:
            for inner in declared_types(annotation):
                yield from below(inner, f"{kind.__name__.removeprefix('Stored')}.{part}")


def below(kind: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, annotation, default in declared(kind):
        if f"{path}.{name}" in FREE_FORM:
            continue
        yield f"{path}.{name}", default
        for inner in declared_types(annotation):
            yield from below(inner, f"{path}.{name}")


def declared(kind: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield name on the wire, type and default of the fields of a model or a struct."""
    if issubclass(kind, BaseModel):
        for name, field in kind.model_fields.items():
            default = (
                NODEFAULT if field.is_required() else field.get_default(call_default_factory=True)
            )
            yield field.alias or name, field.annotation, plain(default)
        return
    hints = typing.get_type_hints(kind)
    for each in structs.fields(kind):
        default = each.default if each.default_factory is NODEFAULT else each.default_factory()
        yield each.encode_name, hints[each.name], plain(default)


def plain(default: Any) -> Any:
    """Return a default in a form in which both kinds of declaration can be compared."""
    if isinstance(default, BaseModel | msgspec.Struct) and default == type(default)():
        return {}  # its fields are compared one by one
    return list(default) if isinstance(default, tuple) else default


def declared_types(annotation: Any) -> Iterator[Any]:
    """Yield the models and structs in a type: those of its optional, list and dict forms too."""
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        if issubclass(annotation, BaseModel | msgspec.Struct):
            yield annotation
        return
    for inner in typing.get_args(annotation):
        yield from declared_types(inner)
