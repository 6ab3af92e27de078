"""Logs of containers are read as `kubectl logs` asks for them."""

import asyncio
import io
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bindery.nodeagent.containers.serving.logs import LogQuery, LogQueryError, query_of, read
from bindery.nodeagent.containers.serving.logs import tail_start as start_of_tail

NOW_S = 1_780_000_000.0
LINES = (
    b"2026-11-28T10:00:00.000000001Z stdout F first\n"
    b"2026-11-28T10:00:01.000000000Z stderr F wrong\n"
    b"2026-11-28T10:00:02.5Z stdout P a long \n"
    b"2026-11-28T10:00:02.6Z stdout F line\n"
    b"not of a runtime\n"
    b"2026-11-28T10:00:03+00:00 stdout F \n"
    b"2026-11-28T10:00:04Z stdout F last\n"
)


async def ended() -> bool:
    return False


def log(path: Path, query: LogQuery, is_running: Callable[[], Awaitable[bool]] = ended) -> bytes:
    async def all_of_it() -> bytes:
        return b"".join([piece async for piece in read(path, query, is_running)])

    return asyncio.run(all_of_it())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "0.log"
    path.write_bytes(LINES)
    return path


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (LogQuery(), b"first\nwrong\na long line\n\nlast\n"),
        (LogQuery(stream=b"stderr"), b"wrong\n"),
        (LogQuery(tail_lines=2), b"\nlast\n"),
        (LogQuery(tail_lines=0), b""),
        (LogQuery(tail_lines=99), b"first\nwrong\na long line\n\nlast\n"),
        (LogQuery(limit_bytes=8), b"first\nwr"),
        (LogQuery(since_s=1795860002.55), b"line\n\nlast\n"),
        (
            LogQuery(timestamps=True, stream=b"stdout", limit_bytes=79),
            b"2026-11-28T10:00:00.000000001Z first\n2026-11-28T10:00:02.5Z a long line\n2026-11",
        ),
    ],
)
def test_a_query_gets_its_part_of_a_log(file: Path, query: LogQuery, expected: bytes) -> None:
    assert log(file, query) == expected


def test_a_line_that_is_not_whole_yet_is_shown_at_the_end(file: Path) -> None:
    with file.open("ab") as more:
        more.write(b"2026-11-28T10:00:05Z stdout F and")

    assert log(file, LogQuery(tail_lines=1)).endswith(b"and\n")


def test_a_followed_log_ends_with_its_container_and_after_its_last_line(file: Path) -> None:
    looks = 0

    async def is_running() -> bool:
        nonlocal looks
        looks += 1
        with file.open("ab") as more:
            more.write(b"2026-11-28T10:00:05Z stdout F %d\n" % looks)
        return looks < 3

    assert log(file, LogQuery(follow=True, tail_lines=1), is_running) == b"last\n1\n2\n3\n"


def begin_again(file: Path) -> None:
    """Begin the log again, as a runtime that is asked to open it again."""
    with file.open("ab") as more:
        more.write(b"2026-11-28T10:00:05Z stdout F of the old file\n")
    file.rename(file.with_suffix(".1"))
    file.write_bytes(b"2026-11-28T10:00:06Z stdout F of the new file\n")


def test_a_followed_log_goes_on_in_the_next_file(file: Path) -> None:
    looks = 0

    async def is_running() -> bool:
        nonlocal looks
        looks += 1
        if looks == 1:
            begin_again(file)
        return looks < 2

    query = LogQuery(follow=True, tail_lines=1)
    assert log(file, query, is_running) == b"last\nof the old file\nof the new file\n"


@given(st.lists(st.binary(max_size=9).filter(lambda text: b"\n" not in text)), st.integers(0, 9))
def test_the_tail_begins_before_the_last_lines(lines: list[bytes], count: int) -> None:
    text = b"".join(line + b"\n" for line in lines)
    file = io.BytesIO(text)

    start = start_of_tail(file, count)

    assert text[start:] == b"".join(line + b"\n" for line in lines[max(0, len(lines) - count) :])


def test_the_parameters_of_kubectl_are_read() -> None:
    found = query_of(
        {
            "follow": "true",
            "previous": "true",
            "timestamps": "true",
            "tailLines": "3",
            "limitBytes": "10",
            "sinceSeconds": "60",
        },
        NOW_S,
    )

    assert found == LogQuery(True, True, True, 3, 10, NOW_S - 60, b"")
    since = query_of({"sinceTime": "2026-11-28T10:00:00Z", "stream": "Stderr"}, NOW_S)
    assert (since.since_s, since.stream) == (1795860000.0, b"stderr")


@pytest.mark.parametrize(
    "parameters",
    [
        {"tailLines": "-1"},
        {"tailLines": "many"},
        {"limitBytes": "0"},
        {"sinceSeconds": "0"},
        {"sinceTime": "yesterday"},
        {"sinceSeconds": "1", "sinceTime": "2026-11-28T10:00:00Z"},
        {"stream": "Both"},
    ],
)
def test_parameters_that_make_no_sense_are_refused(parameters: dict[str, str]) -> None:
    with pytest.raises(LogQueryError, match=next(iter(parameters))):
        query_of(parameters, NOW_S)
