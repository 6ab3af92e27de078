"""The structured allocator by tables: the devices that claims get, or the message if none."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.scheduler.plugins.dra.allocatorcases import Case, answer, cases

CASES = cases()


def contains(whole: Any, part: Any) -> bool:
    """Return whether `whole` has all fields of `part`; null in `part`: the field is absent."""
    if isinstance(part, Mapping):
        return all(
            key not in whole if value is None else key in whole and contains(whole[key], value)
            for key, value in part.items()
        )
    if isinstance(part, list):
        return len(whole) == len(part) and all(map(contains, whole, part))
    return bool(whole == part)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_claims_get_the_devices_of_the_table(case: Case) -> None:
    said = answer(case)

    for key in ("error", "claimError"):
        if key in case.expect:
            assert case.expect[key] in said.get(key, f"no {key}: {said}")
            return
    assert said.get("devices", said) == case.expect["devices"]
    for claim, part in case.expect.get("allocations", {}).items():
        assert contains(said["allocations"][claim], part), said["allocations"][claim]


def test_every_case_has_a_unique_name() -> None:
    names = [case.name for case in CASES]

    assert len(set(names)) == len(names)
    assert len(names) >= 40
