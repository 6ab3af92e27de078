"""Past usage from a Prometheus server, over real HTTP: the queries and the use of the results."""

import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import numpy as np
import pytest
from prometheus_client import REGISTRY

from bindery.api.usage import PrometheusConfiguration, UsageConfiguration, UsageQueries
from bindery.kube.lease import Leadership
from bindery.scheduler.usage.formula import Decay, Moment
from bindery.scheduler.usage.keeper import UsageProblems
from bindery.scheduler.usage.metrics import QueueCollector
from bindery.scheduler.usage.prometheus import PrometheusReader, UsageQueryError, over_window
from bindery.scheduler.usage.prometheuskeeper import PrometheusKeeper
from bindery.scheduler.usage.source import GivenUsage, PastUsage
from tests.scheduler.prometheusstandin import PrometheusStandIn, vector
from tests.scheduler.schedulerworld import NOW, Clock

GPU = UsageQueries(allocated="held_gpus", capacity="total_gpus")
QUERIES_A_ROUND = 2
CPU = UsageQueries(allocated="held_cores", capacity="total_cores")


@pytest.fixture
async def prometheus() -> AsyncIterator[PrometheusStandIn]:
    async with PrometheusStandIn().serve() as serving:
        serving.answers["held_gpus"] = vector({"a": 300, "b": 100})
        serving.answers["total_gpus"] = vector({"": 400})
        yield serving


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as made:
        yield made


def reader(
    session: aiohttp.ClientSession, address: str, decay: Decay | None = None, **more: Any
) -> PrometheusReader:
    queries = more.pop("queries", {"gpu": GPU})
    configuration = PrometheusConfiguration(address=address, queries=queries, **more)
    return PrometheusReader(session, configuration, decay or Decay(3600))


# ---- queries -----------------------------------------------------------------------------------


def test_an_expression_is_summed_over_the_window() -> None:
    query = over_window("sum by (queue) (x)", Decay(7 * 86400), 60, NOW)

    assert query == "sum_over_time(((sum by (queue) (x)))[604800000ms:60000ms])"


def test_a_half_life_weights_each_sample_by_its_age() -> None:
    query = over_window("x", Decay(3600, 600), 60, 1000.0)

    assert query == "sum_over_time(((x) * 0.5 ^ ((1000.000 - time()) / 600))[3600000ms:60000ms])"


async def test_all_queries_have_the_same_time(
    prometheus: PrometheusStandIn, session: aiohttp.ClientSession
) -> None:
    await reader(session, prometheus.address, queries={"gpu": GPU, "cpu": CPU}).fetch(NOW)

    assert {asked["time"] for asked in prometheus.asked} == {f"{NOW:.3f}"}
    assert len(prometheus.asked) == 4


# ---- answers -----------------------------------------------------------------------------------


async def test_usage_is_the_allocated_part_of_the_capacity(
    prometheus: PrometheusStandIn, session: aiohttp.ClientSession
) -> None:
    prometheus.answers |= {"held_cores": vector({"b": 5}), "total_cores": vector({"": 50})}

    fetched = await reader(session, prometheus.address, queries={"gpu": GPU, "cpu": CPU}).fetch(NOW)

    assert fetched.usage == {"a": {"gpu": 0.75}, "b": {"gpu": 0.25, "cpu": 0.1}}
    assert fetched.unusable == 0


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-3", "much"])
async def test_an_invalid_value_alone_is_ignored(
    prometheus: PrometheusStandIn, session: aiohttp.ClientSession, value: str
) -> None:
    prometheus.answers["held_gpus"] = vector({"a": value, "b": 100})

    fetched = await reader(session, prometheus.address).fetch(NOW)

    assert fetched.usage == {"b": {"gpu": 0.25}}
    assert fetched.unusable == 1


async def test_several_series_of_one_queue_are_summed(
    prometheus: PrometheusStandIn, session: aiohttp.ClientSession
) -> None:
    prometheus.answers["held_gpus"]["data"]["result"] *= 2

    fetched = await reader(session, prometheus.address).fetch(NOW)

    assert fetched.usage == {"a": {"gpu": 1.5}, "b": {"gpu": 0.5}}


async def test_a_resource_that_the_cluster_does_not_have_is_ignored(
    prometheus: PrometheusStandIn, session: aiohttp.ClientSession
) -> None:
    prometheus.answers |= {"held_cores": vector({"a": 0}), "total_cores": vector({"": 0})}

    fetched = await reader(session, prometheus.address, queries={"gpu": GPU, "cpu": CPU}).fetch(NOW)

    assert fetched.usage == {"a": {"gpu": 0.75}, "b": {"gpu": 0.25}}


@pytest.mark.parametrize(
    ("answers", "status", "said"),
    [
        ({"total_gpus": vector({})}, 200, "no capacity query has a result"),
        ({"total_gpus": vector({"": "NaN"})}, 200, "no capacity query has a result"),
        ({"held_gpus": vector({"a": 1}, label="team")}, 200, "has the label queue"),
        (
            {"held_gpus": {"status": "error", "errorType": "bad_data", "error": "parse error"}},
            400,
            "HTTP 400: parse error",
        ),
        ({"held_gpus": "<html>Bad Gateway</html>"}, 502, "HTTP 502, not the query API: '<html>"),
        ({"held_gpus": ""}, 200, "not the query API"),
        (
            {"held_gpus": {"status": "success", "data": {"resultType": "matrix", "result": []}}},
            200,
            "the result must be a vector, found matrix",
        ),
        (
            {
                "held_gpus": {
                    "status": "success",
                    "data": {"resultType": "vector", "result": [{"metric": {}, "value": [1]}]},
                }
            },
            200,
            "malformed vector",
        ),
        ({"held_gpus": {"status": "success"}}, 200, "the result must be a vector, found nothing"),
    ],
)
async def test_an_unusable_response_is_an_error_with_the_reason(
    prometheus: PrometheusStandIn,
    session: aiohttp.ClientSession,
    answers: dict[str, Any],
    status: int,
    said: str,
) -> None:
    prometheus.answers |= answers
    prometheus.status = status

    with pytest.raises(UsageQueryError) as raised:
        await reader(session, prometheus.address).fetch(NOW)

    assert said in str(raised.value)


async def test_a_request_to_a_silent_server_times_out(
    prometheus: PrometheusStandIn, session: aiohttp.ClientSession
) -> None:
    prometheus.silent.set()

    with pytest.raises(UsageQueryError, match=r"no answer within 0.2 s"):
        await reader(session, prometheus.address, query_timeout_seconds=0.2).fetch(NOW)


async def test_an_unreachable_server_is_an_error(session: aiohttp.ClientSession) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"

        with pytest.raises(UsageQueryError, match="ClientConnectorError"):
            await reader(session, address).fetch(NOW)


def test_the_default_queries_use_series_that_a_scheduler_exports() -> None:
    past = PastUsage(GivenUsage(), 1.0)
    amounts = np.ones((4, 1))
    resources = ["cpu", "memory", "pods", "nvidia.com/gpu"]
    past.account(Moment(NOW, ["a"], resources, amounts, amounts[:, 0]))

    exported = {
        (sample.name, sample.labels["resource"])
        for family in QueueCollector(past).collect()
        for sample in family.samples
    }

    for resource, queries in PrometheusConfiguration().queries.items():
        for name, query in (
            ("bindery_queue_allocated", queries.allocated),
            ("bindery_capacity", queries.capacity),
        ):
            assert f'{name}{{resource="{resource}"}}' in query
            assert (name, resource) in exported


# ---- keeping it up to date ---------------------------------------------------------------------


@dataclass
class Heard(UsageProblems):
    """Remembers what was complained of."""

    reasons: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def error(self, operation: str, reason: str, problem: str) -> None:  # noqa: ARG002
        self.warning(reason, problem)

    def warning(self, reason: str, problem: str) -> None:
        self.reasons.append(reason)
        self.problems.append(problem)


@dataclass
class Watched:
    """A keeper, the usage that it keeps and its log."""

    prometheus: PrometheusStandIn
    session: aiohttp.ClientSession
    clock: Clock = field(default_factory=Clock)
    given: GivenUsage = field(default_factory=GivenUsage)
    heard: Heard = field(default_factory=Heard)

    def __post_init__(self) -> None:
        configuration = UsageConfiguration(
            source="prometheus",
            prometheus=PrometheusConfiguration(
                address=self.prometheus.address, queries={"gpu": GPU}, fetch_seconds=0.01
            ),
        )
        self.keeper = PrometheusKeeper(self.given, configuration, self.heard, self.clock)

    async def update(self) -> None:
        await self.keeper.update(reader(self.session, self.prometheus.address))


def stale() -> float | None:
    return REGISTRY.get_sample_value("bindery_usage_stale")


async def test_old_usage_is_kept_while_no_newer_is_available(
    prometheus: PrometheusStandIn, session: aiohttp.ClientSession
) -> None:
    kept = Watched(prometheus, session)
    await kept.update()
    prometheus.status, prometheus.answers["held_gpus"] = 503, "down"

    await kept.update()

    assert kept.given.parts == {"a": {"gpu": 0.75}, "b": {"gpu": 0.25}}
    assert kept.heard.reasons == ["UsageUnavailable"]
    assert "the previous values are used" in kept.heard.problems[0]
    assert stale() == 0


async def test_usage_past_the_staleness_limit_is_still_used_with_a_warning(
    prometheus: PrometheusStandIn, session: aiohttp.ClientSession
) -> None:
    kept = Watched(prometheus, session)
    await kept.update()
    prometheus.status, prometheus.answers["held_gpus"] = 503, "down"
    kept.clock.now += 301

    await kept.update()

    assert kept.given.parts == {"a": {"gpu": 0.75}, "b": {"gpu": 0.25}}
    assert kept.heard.reasons == ["UsageUnavailable", "UsageStale"]
    assert stale() == 1


async def test_usage_is_no_longer_stale_once_the_server_answers_again(
    prometheus: PrometheusStandIn, session: aiohttp.ClientSession
) -> None:
    kept = Watched(prometheus, session)
    prometheus.status, prometheus.answers["held_gpus"] = 503, "down"
    await kept.update()
    assert (stale(), kept.given.parts) == (1, {})

    prometheus.status = 200
    prometheus.answers["held_gpus"] = vector({"a": 400})
    await kept.update()

    assert (stale(), kept.given.parts) == (0, {"a": {"gpu": 1.0}})


async def test_usage_is_available_for_the_first_plan_and_renewed_afterwards(
    prometheus: PrometheusStandIn, session: aiohttp.ClientSession
) -> None:
    kept = Watched(prometheus, session)

    async with kept.keeper.kept(Leadership(1, kept.clock, kept.clock.now + 60)):
        first = dict(kept.given.parts)
        prometheus.answers["held_gpus"] = vector({"a": 400})
        async with asyncio.timeout(30):
            for _ in range(5 * QUERIES_A_ROUND):  # so one round at least was whole after it
                await prometheus.queries.acquire()

    assert first == {"a": {"gpu": 0.75}, "b": {"gpu": 0.25}}
    assert kept.given.parts == {"a": {"gpu": 1.0}}
