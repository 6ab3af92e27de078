"""Queries past usage from a Prometheus server over its HTTP API (`/api/v1/query`).

Used by `prometheuskeeper.py`. The server computes the sums over the window, with a subquery of each
expression, weighted by age as in `formula.py`. Invariant: `fetch` returns the results of all
queries for one time, or raises.
"""

import asyncio
import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import aiohttp
import msgspec
from yarl import URL

from bindery.api.usage import PrometheusConfiguration, UsageQueries
from bindery.scheduler.usage.formula import Decay

Usage = dict[str, dict[str, float]]
"""Queue -> resource -> part of capacity."""

_PATH: Final = "api/v1/query"
_MOST_SHOWN: Final = 200
"""Maximum number of characters in an error about an answer that is not JSON."""


class UsageQueryError(Exception):
    """A query failed, or its result cannot be used."""


class _Sample(msgspec.Struct, frozen=True):
    value: tuple[float, str]
    metric: dict[str, str] = msgspec.field(default_factory=dict)


class _Data(msgspec.Struct, frozen=True, rename="camel"):
    result_type: str = ""
    result: msgspec.Raw = msgspec.Raw(b"[]")


class _Answer(msgspec.Struct, frozen=True, rename="camel"):
    status: str
    error: str = ""
    data: _Data = _Data()


_answer_decoder = msgspec.json.Decoder(_Answer)
_vector_decoder = msgspec.json.Decoder(list[_Sample])


@dataclass(frozen=True)
class Fetched:
    """The result of all queries."""

    usage: Usage
    unusable: int
    """Number of series left out because their value is NaN, infinite or negative."""


def over_window(expression: str, decay: Decay, resolution_s: float, now: float) -> str:
    """Return the PromQL for the sum of `expression` over the window, weighted by age."""
    weighed = f"({expression})"
    if decay.half_life_s is not None:
        weighed += f" * 0.5 ^ (({now:.3f} - time()) / {decay.half_life_s:g})"
    window_ms, step_ms = round(decay.window_s * 1000), round(resolution_s * 1000)
    return f"sum_over_time(({weighed})[{window_ms}ms:{step_ms}ms])"


class PrometheusReader:
    """Queries one server over `session`."""

    def __init__(
        self, session: aiohttp.ClientSession, configuration: PrometheusConfiguration, decay: Decay
    ) -> None:
        self._session = session
        self._configuration = configuration
        self._decay = decay
        self._url = URL(configuration.address) / _PATH

    async def fetch(self, now: float) -> Fetched:
        """Return past usage at `now` (seconds since the epoch), without queues that have none.

        Raises:
            UsageQueryError: a query failed or took too long, or the cluster has no capacity.
        """
        queries = self._configuration.queries
        try:
            async with (
                asyncio.timeout(self._configuration.query_timeout_seconds),
                asyncio.TaskGroup() as group,
            ):
                asked = {
                    resource: group.create_task(self._fetch(each, now))
                    for resource, each in queries.items()
                }
        except TimeoutError as error:
            limit_s = self._configuration.query_timeout_seconds
            raise UsageQueryError(f"no answer within {limit_s:g} s") from error
        except ExceptionGroup as group_error:
            first = group_error.exceptions[0]
            raise UsageQueryError(str(first)) from group_error
        answers = {resource: task.result() for resource, task in asked.items()}
        if not any(answer.has_capacity for answer in answers.values()):
            raise UsageQueryError("no capacity query has a result")
        usage: defaultdict[str, dict[str, float]] = defaultdict(dict)
        for resource, answer in answers.items():
            for queue, part in answer.parts.items():
                usage[queue][resource] = part
        return Fetched(dict(usage), sum(answer.unusable for answer in answers.values()))

    async def _fetch(self, queries: UsageQueries, now: float) -> "_Parts":
        """Return the usage of one resource by queue."""
        capacity, _ = _amounts(await self._query(queries.capacity, now))
        total = sum(amount for _, amount in capacity)
        held, unusable = _amounts(await self._query(queries.allocated, now))
        label = self._configuration.queue_label
        # With a wrong label, all queues would seem to have no usage.
        if held and not any(label in metric for metric, _ in held):
            raise UsageQueryError(f"no series of {queries.allocated} has the label {label}")
        parts: defaultdict[str, float] = defaultdict(float)
        for metric, amount in held if total > 0 else ():
            if label in metric:
                parts[metric[label]] += amount / total
        return _Parts(dict(parts), total > 0, unusable)

    async def _query(self, expression: str, now: float) -> list[_Sample]:
        query = over_window(expression, self._decay, self._configuration.resolution_seconds, now)
        parameters = {"query": query, "time": f"{now:.3f}"}
        try:
            async with self._session.get(self._url, params=parameters) as response:
                status, body = response.status, await response.read()
        except (aiohttp.ClientError, OSError) as error:
            raise UsageQueryError(f"{type(error).__name__}: {error}") from error
        return _read(status, body)


@dataclass(frozen=True)
class _Parts:
    parts: Mapping[str, float]
    has_capacity: bool
    unusable: int


def _read(status: int, body: bytes) -> list[_Sample]:
    try:
        answer = _answer_decoder.decode(body)
    except msgspec.DecodeError as error:
        shown = body[:_MOST_SHOWN].decode(errors="replace")
        raise UsageQueryError(f"HTTP {status}, not the query API: {shown!r}") from error
    if answer.status != "success":
        raise UsageQueryError(f"HTTP {status}: {answer.error}")
    if answer.data.result_type != "vector":
        found = answer.data.result_type or "nothing"
        raise UsageQueryError(f"the result must be a vector, found {found}")
    try:
        return _vector_decoder.decode(answer.data.result)
    except msgspec.DecodeError as error:
        raise UsageQueryError(f"malformed vector: {error}") from error


def _amounts(samples: list[_Sample]) -> tuple[list[tuple[Mapping[str, str], float]], int]:
    """Return the labels and values of `samples`, and the number of those left out."""
    usable: list[tuple[Mapping[str, str], float]] = []
    for sample in samples:
        try:
            amount = float(sample.value[1])
        except ValueError:
            continue
        if math.isfinite(amount) and amount >= 0:
            usable.append((sample.metric, amount))
    return usable, len(samples) - len(usable)
