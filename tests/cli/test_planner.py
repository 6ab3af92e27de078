"""The Lease of a component, and the configuration that a command reads from it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from bindery.answers.leaders import Leader, Leading, confirmed, leader, read_leader
from bindery.answers.planner import Planner, configuration_of, with_served_pools
from bindery.api.configuration import PluginConfiguration, SchedulerConfiguration
from bindery.api.names import CONFIGURATION_ANNOTATION, scheduler_lease
from bindery.api.times import timestamp_micro
from bindery.kube.errors import NotFoundError
from bindery.kube.objects.watched import Lease, LeaseSpec, Meta
from bindery.kube.publication import Publication, annotations

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def ago(seconds: float) -> str:
    return timestamp_micro((NOW - timedelta(seconds=seconds)).timestamp())


def lease(renewed_s: float | None = 1, holder: str = "one", text: str | None = None) -> Lease:
    renewed = None if renewed_s is None else ago(renewed_s)
    given = {} if text is None else {CONFIGURATION_ANNOTATION: text}
    return Lease(
        metadata=Meta(name="bindery-scheduler", namespace="kube-system", annotations=given),
        spec=LeaseSpec(
            holder_identity=holder,
            lease_duration_seconds=15,
            acquire_time=ago(7200),
            renew_time=renewed,
        ),
    )


@pytest.mark.parametrize(
    ("found", "state", "text"),
    [
        (lease(), Leading.LEADS, "one leads for 2h; Lease kube-system/bindery-scheduler was "),
        (lease(55), Leading.ENDED, "Lease kube-system/bindery-scheduler of one ended 40 s ago"),
        (lease(60, holder=""), Leading.RELEASED, "bindery-scheduler was released 60s ago"),
        (lease(None, holder=""), Leading.NEVER, "has never been held"),
    ],
)
def test_a_lease_identifies_the_leader(found: Lease, state: Leading, text: str) -> None:
    seen = leader(found, NOW)

    assert seen.state is state
    assert text in seen.text()


def test_the_age_of_a_lease_is_its_age_at_the_time_of_the_read() -> None:
    seen = leader(lease(2), NOW)

    _, second = Planner(SchedulerConfiguration(), seen).lines()

    assert second.endswith("was renewed 2s ago.")


class Server:
    """Answers with a Lease whose holder renews it, or no longer does."""

    def __init__(self, answer: Lease | None) -> None:
        self._answer = answer

    async def get(self, *_about: object) -> Lease:
        if self._answer is None:
            raise NotFoundError(404, "NotFound", "gone")
        return self._answer


@pytest.mark.parametrize(
    ("later", "state"),
    [
        (lease(50), Leading.LEADS),  # renewed meanwhile: the clocks differ by almost a minute
        (lease(55), Leading.ENDED),
        (None, Leading.ABSENT),
    ],
)
async def test_a_lease_has_expired_if_it_is_not_renewed_between_two_reads(
    later: Lease | None, state: Leading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bindery.answers.leaders._AGAIN_S", 0.0)

    found = await confirmed(Server(later), leader(lease(55), NOW))  # type: ignore[arg-type]  # a stand-in

    assert found.state is state


class Pools:
    """Answers with the Lease of each node pool that a scheduler serves."""

    def __init__(self, *served: str) -> None:
        self._served = {scheduler_lease(pool) for pool in served}

    async def get(self, _kind: object, name: str, _namespace: str) -> Lease:
        if name not in self._served:
            raise NotFoundError(404, "NotFound", "gone")
        found = lease(holder=name)
        spec = msgspec.structs.replace(
            found.spec, renew_time=timestamp_micro(datetime.now(UTC).timestamp())
        )
        return msgspec.structs.replace(found, spec=spec)


async def asked_for(pool: str, server: Pools, *pools: str) -> Planner:
    client: Any = server  # a stand-in
    seen = await read_leader(client, scheduler_lease(pool), "kube-system")
    planner = Planner(SchedulerConfiguration(node_pool=pool), seen)
    return await with_served_pools(client, planner, pools, "kube-system")


async def test_a_node_pool_without_a_scheduler_is_reported_with_the_served_pools() -> None:
    found = await asked_for("gpu-larg", Pools("", "gpu-large"), "gpu-large", "cpu")

    assert found.unserved.startswith(
        "no scheduler is known to serve node pool gpu-larg, so nobody places its pods (there is no "
        "Lease kube-system/bindery-scheduler-gpu-larg "
    )
    assert found.unserved.endswith(
        "; a scheduler leads in the default node pool, node pool gpu-large; did you mean gpu-large?"
    )
    assert found.to_wire()["unserved"] == found.unserved


@pytest.mark.parametrize("pool", ["", "gpu-large"])
async def test_a_node_pool_with_a_scheduler_is_served(pool: str) -> None:
    found = await asked_for(pool, Pools("", "gpu-large"), "gpu-large")

    assert found.unserved == ""
    assert "unserved" not in found.to_wire()


async def test_pools_are_not_reported_if_no_scheduler_has_a_lease() -> None:
    assert (await asked_for("a", Pools(), "a", "b")).unserved == ""


def publishing(configuration: SchedulerConfiguration) -> Leader:
    return leader(lease(text=annotations(configuration)[CONFIGURATION_ANNOTATION]), NOW)


def test_plans_use_the_configuration_that_the_leader_publishes() -> None:
    configuration = SchedulerConfiguration(actions=("allocate",), gpu_resources=("own/gpu",))

    assert configuration_of(publishing(configuration)) == (configuration, "")


def test_plugins_that_are_not_installed_are_skipped_and_named() -> None:
    own = (PluginConfiguration(name="predicates"), PluginConfiguration(name="in-house"))
    used, deviation = configuration_of(publishing(SchedulerConfiguration(plugins=own)))

    assert used.plugins == own[:1]
    assert deviation.endswith("without plugins that are not installed here: in-house")


@pytest.mark.parametrize(
    ("published", "why"),
    [
        (None, "the scheduler publishes none (an older version)"),
        (Publication(version="9", hash="0"), "too large to be published; give it with --config"),
        (Publication(version="9", hash="0", changes={"new": 1}), "bindery 9: new: unknown key"),
        (Publication(version="9", hash="0", changes={"actions": ["x"]}), "does not know one of"),
    ],
)
def test_an_unreadable_configuration_is_reported_and_the_defaults_are_used(
    published: Publication | None, why: str
) -> None:
    text = None if published is None else msgspec.json.encode(published).decode()

    used, deviation = configuration_of(leader(lease(text=text), NOW))

    assert used == SchedulerConfiguration()
    assert deviation.startswith("the defaults, because ")
    assert why in deviation


def test_different_defaults_of_another_version_are_reported() -> None:
    text = msgspec.json.encode(Publication(version="9", hash="0", changes={})).decode()

    used, deviation = configuration_of(leader(lease(text=text), NOW))

    assert used == SchedulerConfiguration()
    assert deviation == "that of the scheduler, but bindery 9 has other defaults"


def test_an_answer_lists_the_differences_from_the_defaults() -> None:
    found = publishing(SchedulerConfiguration(actions=("allocate",), node_pool="a"))
    configuration, _ = configuration_of(found)

    first, second = Planner(configuration, found).lines()

    assert first.startswith("Configuration: that of the scheduler (hash ")
    assert first.endswith(", differs from the defaults in actions).")
    assert second.startswith("Scheduler: one leads for 2h;")
