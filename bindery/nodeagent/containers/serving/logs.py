"""Reads the logs of containers as `kubectl logs` asks for them.

Each line of a file is `TIME STREAM TAGS TEXT`; a line with the tag P goes on in the next one.
Source: the log format of CRI, and the kubelet's `kuberuntime/logs`, Kubernetes 1.36.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from os import fstat
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from bindery.nodeagent.containers.errors import ContainerError

LOOK_S: Final = 0.25
"""How often a log that is followed is looked at."""
_BLOCK: Final = 64 * 1024
_PARTIAL: Final = b"P"
_STREAMS: Final = {"All": b"", "Stdout": b"stdout", "Stderr": b"stderr"}


class LogQueryError(ContainerError):
    """Raised for a request for logs that makes no sense."""


class LogLine(NamedTuple):
    """One line of a log file.

    Attributes:
        time: when it was written, in RFC 3339 with nanoseconds.
        text: with the end of the line, unless the next line goes on with it.
    """

    time: bytes
    stream: bytes
    text: bytes


@dataclass(frozen=True)
class LogQuery:
    """What is asked for, as `PodLogOptions` of the API.

    Attributes:
        tail_lines: how many lines of the end; None: all.
        limit_bytes: how much is answered at most; None: all.
        since_s: the time from which on lines count, in seconds since 1970; None: all.
        stream: `stdout` or `stderr`; empty: both.
    """

    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    limit_bytes: int | None = None
    since_s: float | None = None
    stream: bytes = b""


def query_of(parameters: Mapping[str, str], now_s: float) -> LogQuery:
    """Return the query of a URL's parameters.

    Raises:
        LogQueryError: a parameter cannot be read, or two exclude each other.
    """
    seconds, since = _number(parameters, "sinceSeconds", 1), parameters.get("sinceTime", "")
    if seconds is not None and since:
        raise LogQueryError("sinceSeconds and sinceTime exclude each other")
    stream = parameters.get("stream") or "All"
    if stream not in _STREAMS:
        raise LogQueryError(f"stream {stream!r} is none of {', '.join(_STREAMS)}")
    return LogQuery(
        follow=_flag(parameters, "follow"),
        previous=_flag(parameters, "previous"),
        timestamps=_flag(parameters, "timestamps"),
        tail_lines=_number(parameters, "tailLines", 0),
        limit_bytes=_number(parameters, "limitBytes", 1),
        since_s=now_s - seconds if seconds is not None else _time(since),
        stream=_STREAMS[stream],
    )


def _flag(parameters: Mapping[str, str], name: str) -> bool:
    return parameters.get(name, "").lower() in ("1", "t", "true")


def _number(parameters: Mapping[str, str], name: str, least: int) -> int | None:
    text = parameters.get(name, "")
    if not text:
        return None
    try:
        number = int(text)
    except ValueError as error:
        raise LogQueryError(f"{name} {text!r} is not a whole number") from error
    if number < least:
        raise LogQueryError(f"{name} {number} is less than {least}")
    return number


def _time(text: str) -> float | None:
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError as error:
        raise LogQueryError(f"sinceTime {text!r} is not a time") from error


def parsed(line: bytes) -> LogLine | None:
    """Return the parts of a line of a log file, None for what is no such line."""
    parts = line.rstrip(b"\n").split(b" ", 3)
    if len(parts) != 4 or parts[1] not in (b"stdout", b"stderr"):
        return None
    time, stream, tags, text = parts
    is_partial = tags.partition(b":")[0] == _PARTIAL
    return LogLine(time, stream, text if is_partial else text + b"\n")


def tail_start(file: BinaryIO, lines: int) -> int:
    """Return where the last `lines` lines of `file` begin, in bytes."""
    size = file.seek(0, 2)
    if lines == 0:
        return size
    found, end = 0, size
    while end > 0:
        begin = max(0, end - _BLOCK)
        file.seek(begin)
        block = file.read(end - begin)
        at = len(block)
        while (at := block.rfind(b"\n", 0, at)) >= 0:
            if begin + at == size - 1:
                continue  # the end of the last line
            found += 1
            if found == lines:
                return begin + at + 1
        end = begin
    return 0


class LogWriter:
    """Turns lines of a file into what a query asks for."""

    def __init__(self, query: LogQuery) -> None:
        self._query, self._left = query, query.limit_bytes
        self._begins_line = True

    @property
    def is_full(self) -> bool:
        """Whether as much is written as was asked for."""
        return self._left == 0

    def written(self, line: bytes) -> bytes:
        """Return what a line of the file adds to the answer."""
        found = parsed(line)
        query = self._query
        if (
            found is None
            or (query.stream and found.stream != query.stream)
            or (query.since_s is not None and not _is_since(found.time, query.since_s))
        ):
            return b""
        text = found.text
        if query.timestamps and self._begins_line:
            text = found.time + b" " + text
        self._begins_line = text.endswith(b"\n")
        if self._left is not None:
            text = text[: self._left]
            self._left -= len(text)
        return text


def _is_since(time: bytes, since_s: float) -> bool:
    try:
        return datetime.fromisoformat(time.decode("ascii")).timestamp() >= since_s
    except ValueError:
        return False


async def read(
    path: Path, query: LogQuery, is_running: Callable[[], Awaitable[bool]]
) -> AsyncIterator[bytes]:
    """Return the log at `path` in pieces; one that is followed ends with its container.

    A runtime that begins the file again leaves the old one under another name: the rest of the old
    one comes first. `is_running` is asked only when nothing more is written.

    Raises:
        OSError: the file cannot be read.
    """
    writer = LogWriter(query)
    file: BinaryIO = path.open("rb")
    try:
        if query.tail_lines is not None:
            file.seek(tail_start(file, query.tail_lines))
        else:
            file.seek(0)
        rest, is_last = b"", not query.follow
        while not writer.is_full:
            block = file.read(_BLOCK)
            if block:
                *lines, rest = (rest + block).split(b"\n")
                if found := b"".join(map(writer.written, lines)):
                    yield found
                continue
            if is_last:
                if rest and (found := writer.written(rest)):
                    yield found
                return
            follower = _next(path, file)
            if follower is not None:
                file.close()
                file, rest = follower, b""
                continue
            is_last = not await is_running()
            if not is_last:
                await asyncio.sleep(LOOK_S)
    finally:
        file.close()


def _next(path: Path, file: BinaryIO) -> BinaryIO | None:
    """Return the file that is now at `path`, None if it is `file` itself."""
    try:
        if path.stat().st_ino == fstat(file.fileno()).st_ino:
            return None
        return path.open("rb")
    except FileNotFoundError:
        return None  # it is being renamed
