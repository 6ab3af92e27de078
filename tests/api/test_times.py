"""Times in the format of the API."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bindery.api.times import seconds, timestamp, timestamp_micro, timestamp_milli


def test_a_time_is_written_in_utc_with_the_precision_of_its_field() -> None:
    assert timestamp(0.75) == "1970-01-01T00:00:00Z"
    assert timestamp_milli(0.75) == "1970-01-01T00:00:00.750Z"
    assert timestamp_micro(0.75) == "1970-01-01T00:00:00.750000Z"


def test_a_time_beyond_rfc_3339_is_written_as_the_last_possible_time() -> None:
    assert timestamp(1e308) == "9999-12-31T23:59:59Z"


@pytest.mark.parametrize("text", ["2026-07-01T00:00:00Z", "2026-07-01T02:00:00.000+02:00"])
def test_a_time_of_any_zone_is_read_as_seconds_since_the_epoch(text: str) -> None:
    assert seconds(text) == 1782864000


@pytest.mark.parametrize("text", [None, "", "yesterday", "2026-13-01T00:00:00Z"])
def test_an_invalid_time_is_none(text: str | None) -> None:
    assert seconds(text) is None


@given(st.integers(0, 4_000_000_000))
def test_a_time_survives_writing_and_reading(at_s: int) -> None:
    for write in (timestamp, timestamp_milli, timestamp_micro):
        assert seconds(write(at_s)) == at_s
