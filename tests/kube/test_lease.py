"""The LeaderElector on a real API server."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial

import pytest
from structlog.testing import capture_logs

from bindery.api.configuration import LeaderElection
from bindery.api.times import seconds as seconds_of
from bindery.kube.client import Client
from bindery.kube.lease import LeaderElector, Leadership, Observation
from bindery.kube.objects.resources import LEASES
from bindery.kube.objects.watched import Lease, LeaseSpec, Meta
from tests.kube.environments import elsewhere
from tests.kube.faultproxy import Fault, FaultProxy
from tests.kube.mirror import wait_until

WAIT_S = 60.0
_STEP_S = 100.0
FIRST_SECOND_OF_2020 = datetime(2020, 1, 1, 0, 0, 1, tzinfo=UTC).timestamp()
"""The time of all candidates, so that the tokens of a new Lease begin with 1."""
_BEGUN_S = time.monotonic()


def now_s() -> float:
    """Return the time of all candidates; it stays in that second for hours."""
    return FIRST_SECOND_OF_2020 + (time.monotonic() - _BEGUN_S) / 10_000


class Clock:
    """The time of all candidates of a test, which may be put forward."""

    def __init__(self) -> None:
        self._ahead_s = 0.0
        self.reads = 0

    def __call__(self) -> float:
        self.reads += 1
        return time.monotonic() + self._ahead_s

    def put_forward(self, seconds: float) -> None:
        self._ahead_s += seconds


class Candidate:
    """An elector and what it did; every candidate of a test shares `acting`."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        identity: str,
        acting: list[str],
        clock: Clock,
        **times: float,
    ) -> None:
        settings = {"lease_seconds": 2, "renew_deadline_seconds": 1, "retry_seconds": 0.1, **times}
        self.notes: dict[str, str] = {}
        self.identity = identity
        self.acting = acting
        self.tokens: list[int] = []
        self.terms: list[Leadership] = []
        self.stood_by = 0
        self.stopped_at = 0.0
        self.later_s = 0.0
        self.may_return = asyncio.Event()
        self.elector = LeaderElector(
            elsewhere(client, now_s=lambda: now_s() + self.later_s),
            name="election",
            identity=identity,
            configuration=LeaderElection.model_validate({**settings, "namespace": namespace}),
            clock=clock,
            annotations=lambda: self.notes,
        )

    @property
    def seen(self) -> LeaseSpec:
        """The Lease as the candidate has seen it last."""
        return self.elector._seen.lease.spec if self.elector._seen is not None else LeaseSpec()

    async def lead(self, leadership: Leadership) -> None:
        assert self.acting == [], "two lead at once"
        self.acting.append(self.identity)
        self.terms.append(leadership)
        self.tokens.append(leadership.fencing_token)
        try:
            await self.may_return.wait()
        finally:
            self.stopped_at = time.monotonic()
            self.acting.remove(self.identity)

    def stand_by(self) -> None:
        self.stood_by += 1

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        task = asyncio.create_task(self.elector.run(self.lead, self.stand_by))
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.wait([task])

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[asyncio.Task[None]]:
        """Run, and lead before the context is entered."""
        async with self.running() as task:
            await wait_until(lambda: self.acting == [self.identity])
            yield task


@pytest.fixture
def acting() -> list[str]:
    """Who leads at the moment."""
    return []


@pytest.fixture
def clock() -> Clock:
    return Clock()


Stand = Callable[..., Candidate]


@pytest.fixture
def stand(client: Client, namespace: str, acting: list[str], clock: Clock) -> Stand:
    """Makes a candidate: `stand(name, client, **times)`, by default of the direct client."""

    def make(name: str, by: Client = client, **times: float) -> Candidate:
        return Candidate(by, namespace, name, acting, clock, **times)

    return make


@pytest.fixture
async def rival(proxy: FaultProxy) -> AsyncIterator[Client]:
    """A second client, whose connection can be broken."""
    async with Client.connect(proxy.kubeconfig, user_agent="rival/0") as made:
        yield made


async def pass_time(clock: Clock, seconds: float, *candidates: Candidate) -> None:
    """Put `clock` forward by 100 s again and again, each time until all see a renewal.

    A renewal that was asked for before, and whose answer was late, leaves a leader too little time.
    """
    for _ in range(math.ceil(seconds / _STEP_S)):
        clock.put_forward(_STEP_S)
        await wait_until(partial(_have_seen_renewal, candidates, now_s()))


def _have_seen_renewal(candidates: Sequence[Candidate], after_s: float) -> bool:
    renewed_at = [candidate.seen.renew_time for candidate in candidates]
    leading = [one.terms[-1] for one in candidates if one.identity in one.acting]
    are_renewed = all((seconds_of(at) or 0.0) > after_s for at in renewed_at)
    return are_renewed and all(term.valid_for_s() > _STEP_S for term in leading)


async def lease_of(client: Client, namespace: str) -> LeaseSpec:
    return (await client.get(LEASES, "election", namespace)).spec


@pytest.mark.e2e
async def test_exactly_one_of_several_candidates_leads(
    client: Client, namespace: str, acting: list[str], stand: Stand, clock: Clock
) -> None:
    times = {"lease_seconds": 200, "renew_deadline_seconds": 150}
    one, two = (stand(name, **times) for name in ("one", "two"))
    async with one.running(), two.running():
        await wait_until(lambda: len(acting) == 1)
        await pass_time(clock, 500, one, two)  # longer than the Lease lasts without a renewal
        assert len(one.tokens) + len(two.tokens) == 1
        first, second = sorted((one, two), key=lambda each: each.stood_by)
        assert first.stood_by == 0, "who wins at once never stands by"
        assert second.stood_by > 0
        spec = await lease_of(client, namespace)

    assert spec.lease_transitions == (one.tokens + two.tokens)[0] == 1
    assert spec.lease_duration_seconds == 200
    assert spec.holder_identity in ("one", "two")


@pytest.mark.e2e
async def test_a_clean_stop_releases_the_lease_at_once(
    client: Client, namespace: str, acting: list[str], stand: Stand
) -> None:
    one = stand("one", lease_seconds=600)
    two = stand("two", lease_seconds=600)
    async with one.leading() as first:
        first.cancel()
        await asyncio.wait([first])
        assert (await lease_of(client, namespace)).holder_identity == ""
        async with two.running():
            await wait_until(lambda: acting == ["two"])

    assert one.tokens == [1]
    assert two.tokens == [2]


@pytest.mark.e2e
async def test_a_stop_leaves_the_lease_to_expire_while_a_write_may_still_take_effect(
    client: Client, namespace: str, acting: list[str], stand: Stand
) -> None:
    one = stand("one")
    two = stand("two")
    async with one.leading() as first:
        one.terms[-1].is_to_expire = True
        first.cancel()
        await asyncio.wait([first])
        assert (await lease_of(client, namespace)).holder_identity == "one"
        async with two.running():
            await wait_until(lambda: acting == ["two"])

    assert two.tokens == [2]


@pytest.mark.e2e
async def test_a_stop_between_a_renewal_and_its_answer_releases_the_lease(
    client: Client, rival: Client, proxy: FaultProxy, namespace: str, stand: Stand
) -> None:
    one = stand("one", rival, lease_seconds=600, renew_deadline_seconds=300)
    async with one.leading() as first:
        renewal = proxy.break_next(Fault("PUT", "/leases/", hang_after_send=True))
        await wait_until(lambda: renewal.is_hanging)
        first.cancel()
        await asyncio.wait([first])

    assert (await lease_of(client, namespace)).holder_identity == ""


@pytest.mark.e2e
async def test_a_dead_leader_is_replaced_when_its_lease_expires(
    client: Client,
    rival: Client,
    proxy: FaultProxy,
    namespace: str,
    acting: list[str],
    stand: Stand,
    clock: Clock,
) -> None:
    """Death as others see it: renewals end, and nothing is released."""
    times = {"lease_seconds": 600, "renew_deadline_seconds": 500}
    one = stand("one", rival, **times)
    two = stand("two", **times)
    async with one.leading() as first, two.running():
        await wait_until(lambda: two.elector._seen is not None)
        await proxy.stop_listening()
        proxy.break_next(Fault("PUT", "/leases/", times=1000, drop_before_send=True))
        proxy.break_next(Fault("GET", "/leases/", times=1000, drop_before_send=True))
        first.cancel()
        await wait_until(lambda: acting == [])
        last = await lease_of(client, namespace)
        await wait_until(lambda: two.seen == last)
        clock.put_forward(500)
        reads = clock.reads  # from now on only those of the second, two for each look
        await wait_until(lambda: clock.reads > reads + 6)
        assert acting == []
        clock.put_forward(100)
        await wait_until(lambda: acting == ["two"])
        spec = await lease_of(client, namespace)

    assert two.tokens == [2]
    assert spec.lease_transitions == 2


@pytest.mark.e2e
async def test_a_disconnected_leader_stops_before_another_starts(
    rival: Client, proxy: FaultProxy, acting: list[str], stand: Stand
) -> None:
    one = stand("one", rival)
    two = stand("two")
    async with one.leading(), two.running():
        cut = [
            proxy.break_next(Fault(method, "/leases/", times=1000, hang=True))
            for method in ("PUT", "GET")
        ]
        cut_at = time.monotonic()
        with capture_logs() as logs:
            await wait_until(lambda: acting == [])
        assert 0.5 < one.stopped_at - cut_at < 1.6
        assert not one.terms[0].is_valid()
        (failed,) = (each for each in logs if each["event"] == "renewal failed")
        assert failed["error"] == "no answer in time"
        await wait_until(lambda: acting == ["two"])
        # Once it is back, the first stands again, and waits for its turn.
        for fault in cut:
            fault.times = 0
        two.may_return.set()
        await wait_until(lambda: acting == ["one"])

    assert one.tokens == [1, 3]
    assert two.tokens == [2]


@pytest.mark.e2e
async def test_renewals_survive_refusals_lost_answers_and_foreign_writes(
    client: Client, rival: Client, proxy: FaultProxy, namespace: str, stand: Stand, clock: Clock
) -> None:
    one = stand("one", rival, lease_seconds=200, renew_deadline_seconds=150)
    async with one.leading():
        proxy.break_next(Fault("PUT", "/leases/", status=500))
        proxy.break_next(Fault("PUT", "/leases/", drop_after_send=True))
        label = {"metadata": {"labels": {"noticed": "by-somebody"}}}
        await client.patch(LEASES, "election", label, namespace=namespace)
        renewed_at = (await lease_of(client, namespace)).renew_time
        await pass_time(clock, 300, one)  # longer than the renew deadline
        lease = await client.get(LEASES, "election", namespace)

    assert one.tokens == [1]
    assert lease.spec.renew_time is not None
    assert renewed_at is not None
    assert lease.spec.renew_time > renewed_at
    assert lease.metadata.labels == {"noticed": "by-somebody"}


@pytest.mark.e2e
async def test_a_lease_has_the_annotations_of_its_holder_and_keeps_all_others(
    client: Client, namespace: str, acting: list[str], stand: Stand
) -> None:
    async def annotations() -> dict[str, str]:
        return (await client.get(LEASES, "election", namespace)).metadata.annotations

    one = stand("one")
    one.notes = {"uses": "first"}
    async with one.leading():
        assert await annotations() == {"uses": "first"}
        patch = {"metadata": {"annotations": {"by": "x"}}}
        await client.patch(LEASES, "election", patch, namespace=namespace)
        one.notes = {"uses": "changed"}
        for _ in range(2):  # the second renewal has begun after the change

            def is_renewed(seen: LeaseSpec = one.seen) -> bool:
                return one.seen != seen

            await wait_until(is_renewed)
        assert await annotations() == {"uses": "changed", "by": "x"}
    two = stand("two")
    two.notes = {"uses": "second"}
    async with two.leading():
        assert await annotations() == {"uses": "second", "by": "x"}


@pytest.mark.e2e
async def test_a_lease_taken_by_another_holder_ends_the_term(
    client: Client, namespace: str, acting: list[str], stand: Stand
) -> None:
    one = stand("one")
    async with one.leading():
        taken = {"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 1}}
        await client.patch(LEASES, "election", taken, namespace=namespace)
        await wait_until(lambda: acting == [])
        await wait_until(lambda: acting == ["one"])

    assert one.tokens == [1, 2]


@pytest.mark.e2e
async def test_tokens_increase_even_if_the_lease_is_deleted(
    client: Client, namespace: str, stand: Stand
) -> None:
    one = stand("one")
    async with one.leading():
        await client.delete(LEASES, "election", namespace)
        await wait_until(lambda: len(one.tokens) == 2)

    assert one.tokens == [1, 2]


@pytest.mark.e2e
async def test_tokens_increase_if_the_lease_is_created_without_knowledge_of_an_earlier_one(
    client: Client, namespace: str, stand: Stand
) -> None:
    """As after the installation was removed and made again."""
    one, two = stand("one"), stand("two")
    async with one.leading():
        pass
    await client.delete(LEASES, "election", namespace)
    two.later_s = 60.0
    async with two.leading():
        pass

    assert one.tokens == [1]
    assert two.tokens == [61]


@pytest.mark.e2e
async def test_tokens_increase_if_an_installation_is_created_again_with_its_lease(
    client: Client, namespace: str, stand: Stand
) -> None:
    """The chart makes the Lease, without a holder."""
    one, two = stand("one"), stand("two")
    empty = Lease(metadata=Meta(name="election", namespace=namespace), spec=LeaseSpec())
    await client.create(LEASES, empty, namespace)
    async with one.leading():
        pass
    await client.delete(LEASES, "election", namespace)
    await client.create(LEASES, empty, namespace)
    two.later_s = 60.0
    async with two.leading():
        pass

    assert one.tokens == [1]
    assert two.tokens == [61]


@pytest.mark.e2e
async def test_an_exception_of_the_leader_is_raised_and_the_lease_released(
    client: Client, namespace: str, stand: Stand
) -> None:
    async def fail(_leadership: Leadership) -> None:
        raise RuntimeError("a fault of ours")

    elector = stand("one").elector
    with pytest.raises(RuntimeError, match="a fault of ours"):
        await asyncio.wait_for(elector.run(fail), WAIT_S)

    assert (await lease_of(client, namespace)).holder_identity == ""


@pytest.mark.e2e
async def test_without_election_the_work_runs_and_no_lease_is_created(
    client: Client, namespace: str, stand: Stand
) -> None:
    one = stand("one", enabled=False)
    one.may_return.set()

    await asyncio.wait_for(one.elector.run(one.lead), WAIT_S)

    assert one.tokens == [0]
    assert await client.list(LEASES, namespace=namespace) == []


def test_a_lease_expires_by_the_local_clock_from_its_observation() -> None:
    spec = LeaseSpec(holder_identity="one", lease_duration_seconds=15, renew_time="1970-01-01")
    seen = Observation(Lease(spec=spec), at=100.0)

    assert seen.is_held_by_other("two", 114.9)
    assert not seen.is_held_by_other("two", 115.0)
    assert not seen.is_held_by_other("one", 101.0)


def test_a_released_lease_has_no_holder() -> None:
    released = LeaseSpec(holder_identity="", lease_duration_seconds=1)

    assert not Observation(Lease(spec=released), at=0.0).is_held_by_other("two", 0.0)
