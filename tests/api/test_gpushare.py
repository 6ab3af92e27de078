"""Valid shares of GPUs, and their amounts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bindery.api import gpushare
from bindery.api.gpushare import WHOLE, GpuAsk, GpuShare, group_labels, groups, problems, read


def ask(annotations: dict[str, str], *resources: str) -> GpuAsk:
    return GpuAsk(annotations, ["main", "helper"], frozenset(resources))


@pytest.mark.parametrize(
    ("annotations", "share"),
    [
        ({}, None),
        ({"gpu-fraction": "0.5"}, GpuShare(portion=WHOLE // 2)),
        ({"gpu-fraction": "5e-1"}, GpuShare(portion=WHOLE // 2)),
        ({"gpu-fraction": ".25"}, GpuShare(portion=WHOLE // 4)),
        ({"gpu-memory": "4096"}, GpuShare(memory_mib=4096)),
        (
            {"gpu-fraction": "0.1", "gpu-fraction-num-devices": "3"},
            GpuShare(portion=WHOLE // 10, devices=3),
        ),
    ],
)
def test_a_share_is_read(annotations: dict[str, str], share: GpuShare | None) -> None:
    assert read(annotations) == share
    assert problems(ask(annotations)) == []


@pytest.mark.parametrize(
    "fraction",
    [
        "0",
        "1",
        "1.0",
        "1.5",
        "-0.5",
        "nan",
        "inf",
        "1/2",
        "50%",
        "",
        " 0.5",
        "\u0660.\u0665",
        "0.0000000001",
    ],
)
def test_a_fraction_is_above_0_and_below_1(fraction: str) -> None:
    found = problems(ask({"gpu-fraction": fraction}))

    assert found == [f"gpu-fraction must be above 0 and below 1, not {fraction!r}"]
    assert read({"gpu-fraction": fraction}) is None


@pytest.mark.parametrize("memory", ["0", "-1", "1.5", "4Gi", "", "1" * 13])
def test_memory_is_a_whole_number_of_mib(memory: str) -> None:
    (problem,) = problems(ask({"gpu-memory": memory}))

    assert problem.startswith("gpu-memory must be a whole number of MiB above 0")


@pytest.mark.parametrize(
    "resource", ["nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "nvidia.com/gpumem"]
)
def test_a_share_excludes_other_gpu_requests(resource: str) -> None:
    (problem,) = problems(ask({"gpu-fraction": "0.5"}, resource, "cpu"))

    assert problem == f"a share of a GPU and {resource} cannot both be requested"


def test_a_long_value_is_truncated_in_the_message() -> None:
    (problem,) = problems(ask({"gpu-fraction": "x" * 100_000}))

    assert len(problem) < 300


@given(st.text() | st.from_regex(r"[-+0-9.eE]{0,12}"))
def test_any_text_of_an_annotation_is_read_or_reported(text: str) -> None:
    for name in gpushare.ANNOTATIONS:
        annotations = {"gpu-fraction": "0.5", name: text}
        assert bool(problems(ask(annotations))) or read(annotations) is not None


@given(st.lists(st.uuids().map(str), min_size=1, max_size=4, unique=True))
def test_groups_survive_writing_to_labels_and_reading(names: list[str]) -> None:
    assert groups(group_labels(names)) == tuple(sorted(names))


@given(st.integers(1, 200_000), st.lists(st.integers(1, 200_000), min_size=1, max_size=110))
def test_shares_by_memory_fit_as_portions_exactly_if_they_fit_as_mib(
    device: int, asked: list[int]
) -> None:
    portions = [GpuShare(memory_mib=memory).portion_of(device) or 0 for memory in asked]

    assert (sum(portions) <= WHOLE) == (sum(asked) <= device)
