"""An object nested too deeply for the decoder is reported, and does not affect others."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bindery.kube.objects.nesting import MOST_LEVELS, cut, is_cut
from bindery.kube.objects.resources import BIND_REQUESTS, PODS, Resource
from bindery.kube.watches.decoding import LenientDecoder
from bindery.kube.watches.store import Malformed

DEEP = [1_200, 10_000]
"""More than Python's recursion limit; the most that the API server takes."""


def nested(levels: int, opening: str = '{"a":', closing: str = "}") -> str:
    return opening * levels + "1" + closing * levels


def deep_object(levels: int, name: str = "deep") -> str:
    return f'{{"spec":{nested(levels)},"metadata":{{"name":"{name}","resourceVersion":"7"}}}}'


@pytest.mark.parametrize("levels", DEEP)
@pytest.mark.parametrize("resource", [PODS, BIND_REQUESTS])
def test_an_event_with_an_object_nested_too_deeply_is_reported_as_such(
    resource: Resource[Any], levels: int
) -> None:
    line = f'{{"type":"ADDED","object":{deep_object(levels)}}}'

    kind, found = LenientDecoder(resource).event(line.encode())

    assert kind == "ADDED"
    assert isinstance(found, Malformed)
    assert (found.meta.name, found.meta.resource_version) == ("deep", "7")
    assert f"more than {MOST_LEVELS} levels" in found.message


@pytest.mark.parametrize("levels", DEEP)
def test_a_list_with_an_object_nested_too_deeply_contains_all_others(levels: int) -> None:
    plain = '{"metadata":{"name":"plain","annotations":{"[{":"\\"}]"}}}'
    body = f'{{"metadata":{{"resourceVersion":"9"}},"items":[{deep_object(levels)},{plain}]}}'

    page = LenientDecoder(PODS).page(body.encode())
    assert page.items is not None
    deep, other = page.items

    assert isinstance(deep, Malformed)
    assert not isinstance(other, Malformed)
    assert other.metadata.annotations == {"[{": '"}]'}
    assert page.metadata.resource_version == "9"


@pytest.mark.parametrize("levels", DEEP)
def test_reading_an_object_nested_too_deeply_is_an_error_of_its_answer(levels: int) -> None:
    with pytest.raises(msgspec.DecodeError, match="nested too deeply"):
        BIND_REQUESTS.decode(deep_object(levels).encode())

    names = [
        each.metadata.name
        for each in PODS.decode_page(
            f'{{"items":[{deep_object(levels)},{deep_object(1, "plain")}]}}'.encode()
        ).items
        or ()
    ]
    assert names == ["deep", "plain"]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda below: st.lists(below, max_size=4) | st.dictionaries(st.text(), below, max_size=4),
)


@given(value=_JSON)
def test_objects_within_the_maximum_depth_are_not_changed(value: object) -> None:
    text = msgspec.json.encode(value)

    assert cut(text) == text
    assert not is_cut(text)


@given(value=_JSON, levels=st.integers(MOST_LEVELS, 2_000), closing=st.sampled_from("[{"))
def test_a_truncated_object_can_be_decoded_and_keeps_its_other_fields(
    value: object, levels: int, closing: str
) -> None:
    opening, end = ("[", "]") if closing == "[" else ('{"]":', "}")
    text = b'{"beside":' + msgspec.json.encode(value) + b',"deep":'
    text += nested(levels, opening, end).encode() + b',"after":[1]}'

    decoded = msgspec.json.decode(cut(text))

    assert decoded["beside"] == value
    assert decoded["after"] == [1]
    assert is_cut(cut(text))
