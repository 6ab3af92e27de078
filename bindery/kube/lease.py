"""Leader election with a Lease (coordination.k8s.io/v1): only one of several replicas acts.

Run by the scheduler and the binder around their main loops. The protocol is client-go's
leaderelection. `kubernetes.aio.leaderelection` is not used because it does not count transitions,
and Bindery uses the count as fencing token; it also writes local times without a zone. Invariants:
the leader has renewed the Lease less than `renew_deadline_seconds` ago, and each term has a larger
token than all earlier terms.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import msgspec
import structlog

from bindery.api.configuration import LeaderElection
from bindery.api.times import timestamp_micro
from bindery.kube.client import Client
from bindery.kube.errors import AlreadyExistsError, ConflictError, KubeError, NotFoundError
from bindery.kube.http.outages import log_failure
from bindery.kube.objects.resources import LEASES
from bindery.kube.objects.watched import Lease, LeaseSpec, Meta

_log = structlog.get_logger()

_RELEASE_TIMEOUT_S = 5.0
_TOKENS_SINCE_S = 1_577_836_800.0
"""2020-01-01, in seconds since the epoch; seconds counted from there fit int32 until 2088."""
_LATE = "no answer in time"
_JITTER = 0.2  # of the time between attempts, so that candidates do not act at the same moment


class Leadership:
    """One term of leadership."""

    def __init__(self, fencing_token: int, clock: Callable[[], float], valid_until: float) -> None:
        self.fencing_token = fencing_token
        """`leaseTransitions` of the Lease; larger in every later term. 0 without an election."""
        self._clock = clock
        self._valid_until = valid_until
        self.is_to_expire = False
        """Whether the Lease is left to expire at the end of the term: a write of the term may
        still take effect, and the next process must not act before."""

    @classmethod
    def without_election(cls) -> "Leadership":
        """Return the leadership of a process that takes part in no election."""
        return cls(0, lambda: 0.0, math.inf)

    def is_valid(self) -> bool:
        """Whether the Lease was renewed recently enough to act on it.

        Check this before acting, after any code that blocks the event loop: `lead` cannot be
        cancelled during such code.
        """
        return self._clock() < self._valid_until

    def valid_for_s(self) -> float:
        """Return the remaining seconds of the leadership, if it is not renewed."""
        return max(0.0, self._valid_until - self._clock())

    def extend(self, valid_until: float) -> None:
        """Record a renewal."""
        self._valid_until = valid_until

    def end(self) -> None:
        """Record the loss of the Lease."""
        self._valid_until = -math.inf


@dataclass(frozen=True)
class Observation:
    """A version of the Lease, and the time when this process first saw it, by its own clock.

    The times in the Lease come from other machines and are not compared with this clock.
    """

    lease: Lease
    at: float

    def is_held_by_other(self, identity: str, now: float) -> bool:
        """Whether another process holds the Lease and has renewed it within its duration."""
        spec = self.lease.spec
        if not spec.holder_identity or spec.holder_identity == identity:
            return False
        return now < self.at + (spec.lease_duration_seconds or 0)


class LeaderElector:
    """A candidate for one Lease. `identity` must be unique to this process."""

    def __init__(
        self,
        client: Client,
        *,
        name: str,
        identity: str,
        configuration: LeaderElection,
        clock: Callable[[], float] | None = None,
        annotations: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """`clock` measures durations; by default the clock of the running event loop.

        `annotations` returns the annotations to write to the Lease at each renewal.
        """
        self._client = client
        self._name = name
        self._namespace = configuration.namespace
        self._identity = identity
        self._configuration = configuration
        self._clock = clock or asyncio.get_running_loop().time
        self._environment = client.environment
        self._annotations = annotations
        self._seen: Observation | None = None

    async def run(
        self,
        lead: Callable[[Leadership], Awaitable[None]],
        stand_by: Callable[[], None] = lambda: None,
    ) -> None:
        """Take part in the election, and run `lead` during each term, until `lead` returns.

        `lead` is cancelled when the Lease could not be renewed in time or was taken; then the
        election continues. The Lease is released when `lead` returns or raises, and when `run` is
        cancelled, unless the term `is_to_expire`. `stand_by` is called after each lost attempt.
        """
        if not self._configuration.enabled:
            await lead(Leadership.without_election())
            return
        while True:
            leadership = await self._win(stand_by)
            _log.info("leading", lease=self._name, fencing_token=leadership.fencing_token)
            if await self._serve(leadership, lead):
                return
            _log.warning("leadership lost", lease=self._name)

    async def _win(self, stand_by: Callable[[], None]) -> Leadership:
        is_late = False
        while True:
            asked_at = self._clock()
            try:
                async with asyncio.timeout(self._configuration.renew_deadline_seconds):
                    lease = await self._acquire()
            except KubeError as error:
                log_failure(_log, "election failed", error, lease=self._name)
            except TimeoutError:
                if not is_late:
                    _log.warning("election failed", lease=self._name, error=_LATE)
                is_late = True
            else:
                is_late = False
                if lease is not None:
                    return Leadership(_transitions(lease), self._clock, self._until(asked_at))
            stand_by()
            await self._pause()

    async def _acquire(self) -> Lease | None:
        """Take the Lease if it is free; return it, or None if another process holds it."""
        try:
            lease = self._observe(await self._client.get(LEASES, self._name, self._namespace))
        except NotFoundError:
            return await self._create()
        if lease.is_held_by_other(self._identity, self._clock()):
            return None
        last = lease.lease.spec.lease_transitions
        token = self._first_token() if last is None else last + 1
        spec = self._spec(token, acquired_at=self._now())
        try:
            return await self._write(lease.lease, spec)
        except ConflictError:
            return None

    async def _create(self) -> Lease | None:
        last = _transitions(self._seen.lease) if self._seen is not None else 0
        lease = Lease(
            metadata=Meta(
                name=self._name, namespace=self._namespace, annotations=dict(self._annotations())
            ),
            spec=self._spec(max(last + 1, self._first_token()), acquired_at=self._now()),
        )
        try:
            created = await self._client.create(LEASES, lease, self._namespace)
        except AlreadyExistsError:
            return None
        return self._observe(created).lease

    def _first_token(self) -> int:
        """Return the token of the first term of a Lease, which the chart may have created.

        The binder may know tokens of a deleted Lease, for example from before a reinstallation.
        Each term lasts longer than a second, so the seconds since 2020 exceed any earlier count of
        terms.
        """
        return max(1, int(self._environment.now_s() - _TOKENS_SINCE_S))

    async def _serve(
        self, leadership: Leadership, lead: Callable[[Leadership], Awaitable[None]]
    ) -> bool:
        """Run `lead` while the Lease is held; return whether `lead` ended by itself."""
        leading = asyncio.ensure_future(lead(leadership))
        keeping = asyncio.create_task(self._keep(leadership))
        try:
            await asyncio.wait({leading, keeping}, return_when=asyncio.FIRST_COMPLETED)
            if leading.done():
                leading.result()  # raises what `lead` raised
                return True
            keeping.result()
            return False
        finally:
            lost = keeping.done()
            if lost:
                leadership.end()
            leading.cancel()
            keeping.cancel()
            # Another process may take over only after `lead` has stopped acting.
            await asyncio.gather(leading, keeping, return_exceptions=True)
            if not lost and not leadership.is_to_expire:
                await self._release(leadership.fencing_token)

    async def _keep(self, leadership: Leadership) -> None:
        """Renew the Lease; return when the Lease is lost."""
        while leadership.is_valid():
            await self._pause(at_most_s=leadership.valid_for_s())
            asked_at = self._clock()
            try:
                async with asyncio.timeout(leadership.valid_for_s()):
                    kept = await self._rewrite(leadership.fencing_token, self._renewed)
            except KubeError as error:
                log_failure(_log, "renewal failed", error, lease=self._name)
                continue
            except TimeoutError:
                _log.warning("renewal failed", lease=self._name, error=_LATE)
                continue
            if not kept:
                return
            leadership.extend(self._until(asked_at))

    def _renewed(self, spec: LeaseSpec) -> LeaseSpec:
        return self._spec(spec.lease_transitions or 0, acquired_at=spec.acquire_time)

    async def _rewrite(self, fencing_token: int, change: Callable[[LeaseSpec], LeaseSpec]) -> bool:
        """Write the own Lease, changed by `change`; return False if another process holds it."""
        assert self._seen is not None, "only a held Lease is written"
        lease = self._seen.lease
        while True:
            try:
                await self._write(lease, change(lease.spec))
            except ConflictError:
                # Another client changed its labels, an earlier write succeeded after all, or it was
                # taken.
                observation = self._observe(
                    await self._client.get(LEASES, self._name, self._namespace)
                )
                lease = observation.lease
                if not self._is_ours(lease, fencing_token):
                    return False
            except NotFoundError:
                return False
            else:
                return True

    async def _release(self, fencing_token: int) -> None:
        # The stop may have come between a renewal and its answer: then the Lease is newer than this
        # process knows, and the next process would wait for its whole duration.
        try:
            async with asyncio.timeout(_RELEASE_TIMEOUT_S):
                await self._rewrite(fencing_token, self._released)
        except KubeError as error:
            log_failure(_log, "release failed", error, lease=self._name)
        except TimeoutError:
            _log.warning("release failed", lease=self._name, error=_LATE)

    async def _write(self, lease: Lease, spec: LeaseSpec) -> Lease:
        # The body contains the resourceVersion of `lease`, so a faster writer causes a conflict.
        meta = lease.metadata
        annotated = msgspec.structs.replace(
            meta, annotations={**meta.annotations, **self._annotations()}
        )
        body = msgspec.structs.replace(lease, metadata=annotated, spec=spec)
        written = await self._client.replace(LEASES, self._name, body, self._namespace)
        return self._observe(written).lease

    def _observe(self, lease: Lease) -> Observation:
        seen = self._seen
        if seen is None or seen.lease.metadata.resource_version != lease.metadata.resource_version:
            self._seen = seen = Observation(lease, self._clock())
        return seen

    def _is_ours(self, lease: Lease, fencing_token: int) -> bool:
        is_held = lease.spec.holder_identity == self._identity
        return is_held and _transitions(lease) == fencing_token

    def _spec(self, transitions: int, acquired_at: str | None) -> LeaseSpec:
        return LeaseSpec(
            holder_identity=self._identity,
            lease_duration_seconds=math.ceil(self._configuration.lease_seconds),
            acquire_time=acquired_at,
            renew_time=self._now(),
            lease_transitions=transitions,
        )

    def _released(self, spec: LeaseSpec) -> LeaseSpec:
        return msgspec.structs.replace(
            spec, holder_identity="", lease_duration_seconds=1, renew_time=self._now()
        )

    def _now(self) -> str:
        return timestamp_micro(self._environment.now_s())

    def _until(self, asked_at: float) -> float:
        # Counted from before the request, so that this process gives up before others may take
        # over.
        return asked_at + self._configuration.renew_deadline_seconds

    async def _pause(self, at_most_s: float = math.inf) -> None:
        jitter = 1.0 + _JITTER * self._environment.random.random()
        await asyncio.sleep(min(self._configuration.retry_seconds * jitter, at_most_s))


def _transitions(lease: Lease) -> int:
    return lease.spec.lease_transitions or 0
