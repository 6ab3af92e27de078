"""The structured allocator: finds devices of one node for all claims of a pod, or none.

`node_fit` calls it. Devices are tried in the order of pools, slices and their positions in a slice;
the first solution wins, as in Kubernetes' allocator (KEP-4381, 4815, 4816, 5007, 5055, 5075;
allocator_incubating.go of k8s.io/dynamic-resource-allocation 0.36). Two additions change no answer:
a device equal to one that failed is skipped, and a request with too few candidates fails at once.
Pure; the number of steps is bounded.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from bindery.api.quantity import nano
from bindery.kube.objects.claims import MOST_RESULTS
from bindery.scheduler.plugins.dra.candidates import AllocationError, CandidateDevice, Candidates
from bindery.scheduler.plugins.dra.claims import DeviceWish, PreparedClaim
from bindery.scheduler.plugins.dra.constraints import Constraint
from bindery.scheduler.plugins.dra.inventory import CounterId, DeviceRecord, Pool
from bindery.scheduler.plugins.dra.usage import DeviceId, PoolId, UsageView

MOST_STEPS: Final = 20_000
"""Maximum number of tried devices per node, about 0.1 s. Kubernetes stops after 10 s."""


@dataclass(frozen=True, slots=True)
class ChosenDevice:
    """One device for one request."""

    wish: DeviceWish
    record: DeviceRecord
    consumed: Mapping[str, int] | None
    """Capacities taken by a share, in billionths; None for the whole device."""


def allocate(
    claims: Sequence[PreparedClaim], candidates: Candidates, usage: UsageView
) -> list[list[ChosenDevice]] | None:
    """Return the devices for each of `claims`, in the order of requests; None if not all fit.

    Raises:
        AllocationError: a pool is incomplete or invalid, a selector fails, or there are too many
            combinations.
    """
    search = _Search(claims, candidates, usage)
    if search.run():
        return search.chosen
    # A pool with a problem has no candidates, but it might have had a solution.
    broken = next((each.pool.problem for each in candidates.pools if each.pool.problem), None)
    if broken is not None:
        raise AllocationError(broken)
    return None


@dataclass
class _InSearch:
    """The devices taken by the search so far, in addition to those in use."""

    whole: defaultdict[DeviceId, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    """Device -> claim index -> number of takes."""
    shares: Counter[DeviceId] = field(default_factory=Counter)
    capacity: defaultdict[DeviceId, Counter[str]] = field(
        default_factory=lambda: defaultdict(Counter)
    )
    counters: defaultdict[PoolId, Counter[CounterId]] = field(
        default_factory=lambda: defaultdict(Counter)
    )


class _Search:
    """A depth-first search over claims, requests, alternatives and devices."""

    def __init__(
        self, claims: Sequence[PreparedClaim], candidates: Candidates, usage: UsageView
    ) -> None:
        self._claims, self._candidates, self._usage = claims, candidates, usage
        self._constraints = [[Constraint(each) for each in c.spec.constraints] for c in claims]
        self._taken = _InSearch()
        self._available: dict[PoolId, Mapping[CounterId, int]] = {}
        self._steps = 0
        self.chosen: list[list[ChosenDevice]] = [[] for _ in claims]

    def run(self) -> bool:
        return self._request(0, 0)

    def _request(self, claim: int, request: int) -> bool:
        if claim == len(self._claims):
            return True
        requests = self._claims[claim].requests
        if request == len(requests):
            return self._request(claim + 1, 0)
        return any(self._wish(claim, request, wish) for wish in requests[request])

    def _wish(self, claim: int, request: int, wish: DeviceWish) -> bool:
        if wish.wants_all:
            found = self._all_of(wish)
            count = len(found)
            if not count:  # a request for all devices needs at least one
                return False
        else:
            found, count = self._candidates.of(wish), wish.count
        if len(self.chosen[claim]) + count > MOST_RESULTS:
            return False
        return self._device(_Place(claim, request, wish, found, count), 0, 0)

    def _all_of(self, wish: DeviceWish) -> Sequence[CandidateDevice]:
        """Return the devices for a request for all devices; full devices do not count."""
        found = self._candidates.all_of(wish)
        return [each for each in found if self._has_capacity(each, Counter())]

    def _device(self, place: "_Place", index: int, start: int) -> bool:
        """Choose the `index`-th device of a request from the candidates at `start` and later."""
        if index == place.count:
            return self._request(place.claim, place.request + 1)
        failed: set[Hashable] = set()
        for position in range(start, len(place.found)):
            if len(place.found) - position < place.count - index:  # too few candidates are left
                return False
            candidate = place.found[position]
            self._count_step()
            if self._is_free(place, candidate.record) and not (
                failed and self._twin(place, candidate) in failed
            ):
                if self._take(place, candidate):
                    if self._device(place, index + 1, position + 1):
                        return True
                    self._give_back(place, candidate)
                failed.add(self._twin(place, candidate))
            if place.wish.wants_all:  # it needs every candidate, so there is no alternative
                return False
        return False

    def _count_step(self) -> None:
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise AllocationError("its devices can be combined in too many ways to try them all")

    def _twin(self, place: "_Place", candidate: CandidateDevice) -> Hashable:
        """Return a key, equal for devices with the same effect on the rest of the search."""
        record = candidate.record
        device, driver = record.device, record.id.driver
        if device.allow_multiple_allocations or candidate.error:  # equal to no other device
            return record.id
        return (
            candidate.is_tainted,
            record.id.pool_id if record.counters else None,
            tuple(sorted(record.counters.items())),
            tuple(
                each.value_of(driver, device)
                for constraints in self._constraints[place.claim :]
                for each in constraints
            ),
            self._wanted_by(record, place),
        )

    def _wanted_by(self, record: DeviceRecord, place: "_Place") -> tuple[bool, ...]:
        """Return for each later request whether the device is among its candidates."""
        return tuple(
            record.id in self._candidates.devices(wish)
            for index, claim in enumerate(self._claims[place.claim :])
            for alternatives in claim.requests[(place.request + 1 if index == 0 else 0) :]
            for wish in alternatives
        )

    # -- one device ------------------------------------------------------------------------------

    def _take(self, place: "_Place", candidate: CandidateDevice) -> bool:
        """Take a free device or change nothing; return whether. A selector may fail."""
        record, taken = candidate.record, self._taken
        shared = record.device.allow_multiple_allocations
        # As in Kubernetes, a failed selector matters only once the search reaches the device.
        if candidate.error:
            raise AllocationError(candidate.error)
        if candidate.is_tainted:
            return False
        if not self._has_capacity(candidate, taken.capacity[record.id]):
            return False
        # Only the first share of a device takes its counters.
        needs_counters = not (shared and self._is_shared(record.id))
        if needs_counters and not self._has_counters(candidate):
            return False
        if not self._add_to_constraints(place, record):
            return False
        if shared:
            taken.shares[record.id] += 1
            taken.capacity[record.id].update(candidate.consumed)
        else:
            taken.whole[record.id][place.claim] += 1
        if needs_counters:
            taken.counters[record.id.pool_id].update(record.counters)
        self.chosen[place.claim].append(
            ChosenDevice(place.wish, record, candidate.consumed if shared else None)
        )
        return True

    def _give_back(self, place: "_Place", candidate: CandidateDevice) -> None:
        """Undo the last `_take`."""
        record, taken = candidate.record, self._taken
        self.chosen[place.claim].pop()
        if record.device.allow_multiple_allocations:
            taken.shares[record.id] -= 1
            taken.capacity[record.id].subtract(candidate.consumed)
            had_counters = not self._is_shared(record.id)
        else:
            taken.whole[record.id][place.claim] -= 1
            had_counters = True
        if had_counters:
            taken.counters[record.id.pool_id].subtract(record.counters)
        for each in self._concerned(place):
            each.remove()

    def _is_free(self, place: "_Place", record: DeviceRecord) -> bool:
        here = self._taken.whole.get(record.id)
        # Admin access may use a device in use, but a claim has each device only once.
        if place.wish.has_admin_access:
            return here is None or not here[place.claim]
        if here is not None and here.total():
            return False
        if record.device.allow_multiple_allocations:
            return not self._usage.is_whole(record.id)
        return not self._usage.is_taken(record.id)

    def _is_shared(self, device: DeviceId) -> bool:
        return self._taken.shares[device] > 0 or self._usage.is_shared(device)

    def _has_capacity(self, candidate: CandidateDevice, taken: Mapping[str, int]) -> bool:
        record = candidate.record
        if not record.device.allow_multiple_allocations:
            return True  # `consumption` has compared the request with the whole device
        return all(
            amount + taken.get(name, 0) + self._usage.consumed(record.id, name)
            <= nano(record.device.capacity[name].value)
            for name, amount in candidate.consumed.items()
        )

    def _has_counters(self, candidate: CandidateDevice) -> bool:
        if not candidate.record.counters:
            return True
        pool = candidate.pool
        available = self._available.get(pool.id)
        if available is None:
            available = self._available[pool.id] = _available(pool, self._usage)
        taken = self._taken.counters[pool.id]
        return all(
            amount + taken[counter] <= available[counter]
            for counter, amount in candidate.record.counters.items()
        )

    def _concerned(self, place: "_Place") -> list[Constraint]:
        return [each for each in self._constraints[place.claim] if each.concerns(place.wish.names)]

    def _add_to_constraints(self, place: "_Place", record: DeviceRecord) -> bool:
        added: list[Constraint] = []
        for each in self._concerned(place):
            if not each.add(record.id.driver, record.device):
                for done in added:  # a refused device must leave no trace
                    done.remove()
                return False
            added.append(each)
        return True


@dataclass(frozen=True, slots=True)
class _Place:
    """The current request, with its candidates and the number of devices."""

    claim: int
    request: int
    wish: DeviceWish
    found: Sequence[CandidateDevice]
    count: int


def _available(pool: Pool, usage: UsageView) -> Mapping[CounterId, int]:
    """Return the pool's counters minus those of devices in use."""
    left = dict(pool.counters)
    for record in pool.devices:
        if record.counters and usage.is_taken(record.id):
            for counter, amount in record.counters.items():
                left[counter] -= amount
    return left
