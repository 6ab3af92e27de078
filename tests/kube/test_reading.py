"""Objects as encoded by Go, and objects that can be read only in part."""

import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bindery
from bindery.kube.objects import claims, reading, storage
from bindery.kube.objects import watched as objects
from bindery.kube.objects.resources import NODES, PODS, Resource
from tests.sizes import examples


@dataclass(frozen=True)
class Nil:
    """A list or map that Go has not made: written as null, or as the empty one."""

    kind: type


def resources() -> Iterator[Resource[Any]]:
    """Yield every kind that Bindery reads, wherever it is declared."""
    for module in pkgutil.walk_packages(bindery.__path__, "bindery."):
        if module.name.endswith("__main__"):
            continue
        for value in vars(importlib.import_module(module.name)).values():
            for each in value if isinstance(value, tuple) else (value,):
                if isinstance(each, Resource):
                    yield each


TYPES = sorted({each.type for each in resources()}, key=lambda kind: f"{kind.__module__}.{kind}")


def plain(hint: Any) -> Any:
    """Return a type without annotations and None."""
    if get_origin(hint) is Annotated:
        return plain(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return plain(next(each for each in get_args(hint) if each is not NoneType))
    return hint


def admits_null(hint: Any) -> bool:
    if get_origin(hint) is Annotated:
        return admits_null(get_args(hint)[0])
    return hint is Any or NoneType in get_args(hint)


@st.composite
def value(draw: st.DrawFn, hint: Any, depth: int = 0) -> Any:
    """Draw JSON for a type, with `Nil` for some of its lists and maps."""
    hint, or_null = plain(hint), admits_null(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (list, tuple, dict) and not or_null and draw(st.booleans()):
        return Nil(origin)
    few = 1 if depth > 3 else 2
    if origin in (list, tuple):
        return draw(st.lists(value(arguments[0], depth + 1), max_size=few))
    if origin is dict:
        return draw(st.dictionaries(st.sampled_from("ab"), value(arguments[1], depth + 1)))
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        fields = msgspec.structs.fields(hint)
        return {
            each.encode_name: draw(value(each.type, depth + 1))
            for each in fields
            if each.required or (depth < 6 and draw(st.booleans()))
        }
    scalars: dict[Any, Any] = {bool: False, int: 1, float: 1.5, str: "x", Any: {"a": None}}
    return scalars.get(hint, {"a": [None]})  # else it is raw JSON


def written(drawn: Any, *, nulls: bool) -> Any:
    """Return drawn JSON with null, or with an empty list or map, in place of each `Nil`."""
    if isinstance(drawn, Nil):
        return None if nulls else drawn.kind()
    if isinstance(drawn, list):
        return [written(each, nulls=nulls) for each in drawn]
    if isinstance(drawn, dict):
        return {key: written(each, nulls=nulls) for key, each in drawn.items()}
    return drawn


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.__name__)
@settings(max_examples=examples(8))
@given(data=st.data())
def test_null_is_an_empty_list_or_map_in_every_kind(kind: type[Any], data: st.DataObject) -> None:
    drawn = data.draw(value(kind))
    resource = Resource("", "v1", "things", "Thing", True, kind)

    read, other = (
        resource.decode(msgspec.json.encode(written(drawn, nulls=nulls))) for nulls in (True, False)
    )

    assert read == other


def test_an_image_without_names_does_not_affect_its_node() -> None:
    """The kubelet writes this after a second import under one tag."""
    status = {"images": [{"names": None, "sizeBytes": 7}], "allocatable": {"cpu": "4"}}
    node = NODES.decode(msgspec.json.encode({"metadata": {"name": "n"}, "status": status}))

    assert node.status.images == [objects.ContainerImage(size_bytes=7)]
    assert node.status.allocatable == {"cpu": "4"}


def test_opaque_parameters_keep_their_nulls() -> None:
    config = [{"opaque": {"driver": "d", "parameters": {"list": None}}, "requests": None}]
    spec = {"devices": {"requests": None, "config": config}}
    claim = claims.RESOURCE_CLAIMS.decode(msgspec.json.encode({"spec": spec}))

    opaque = claim.spec.devices.config[0].opaque
    assert opaque is not None
    assert opaque.parameters == {"list": None}


def test_a_null_in_place_of_a_string_is_an_error() -> None:
    with pytest.raises(msgspec.ValidationError, match="Expected `str`, got `null`"):
        PODS.decode(b'{"metadata": {"name": null}}')


def pod_in(phase: Any, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p", "uid": "u"}, "spec": spec, "status": {"phase": phase}}


def test_an_unreadable_field_keeps_its_last_valid_value_and_all_others_are_new() -> None:
    known = msgspec.convert(pod_in("Pending", priority=1), objects.Pod)

    found = reading.read_in_part(pod_in("Running", priority="?", nodeName="n"), objects.Pod, known)

    assert found is not None
    assert (found.status.phase, found.spec.node_name, found.spec.priority) == ("Running", "n", 1)


def test_without_an_earlier_version_only_unreadable_fields_are_omitted() -> None:
    container = {"name": "c", "resources": {"limits": {"cpu": "1", "x": 2}}, "ports": "?"}
    body = pod_in(3, nodeName="n", containers=[container, "?"])

    found = reading.read_in_part(body, objects.Pod, None)

    assert found is not None
    assert (found.metadata.name, found.spec.node_name, found.status.phase) == ("p", "n", "")
    (read,) = found.spec.containers
    assert read.resources is not None
    assert (read.name, read.resources.limits) == ("c", {"cpu": "1"})


def test_a_list_with_an_unreadable_item_keeps_its_last_valid_items() -> None:
    source = {"csi": {"driver": "d"}}
    known = msgspec.convert({"spec": {**source, "accessModes": ["a"]}}, storage.PersistentVolume)

    found = reading.read_in_part(
        {"spec": {**source, "accessModes": ["b", 3]}}, storage.PersistentVolume, known
    )

    assert found is not None
    assert found.spec.access_modes == ["a"]


def test_an_item_without_a_required_field_is_omitted() -> None:
    results = [{"request": "r", "driver": "d", "pool": "p", "device": n} for n in ("one", 2)]
    body = {"status": {"allocation": {"devices": {"results": results}}}}

    found = reading.read_in_part(body, claims.ResourceClaim, None)

    assert found is not None
    assert found.status.allocation is not None
    assert [each.device for each in found.status.allocation.devices.results] == ["one"]
