"""The rules of the documentation, stated a second time over plain data.

Slow and simple on purpose: every question is answered from the world, the pods that have gone and
the pods that have got a place. Imports nothing of the scheduler.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from itertools import combinations

from tests.exhaustive.worlds import UNLIMITED, Job, Node, Pod, Term, World

Domain = tuple[str, ...]
"""The labels of a domain, from the widest level down."""
_OTHER = "later/"
"""Begins the names of pods that a later stage will have."""


class Action(Enum):
    """A way to a plan, in the order in which they are tried.

    Reclaim tries victims first whose loss leaves every queue its quota (decision 054).
    """

    ALLOCATE = "allocate"
    RECLAIM_KEEPING = "reclaim, quotas kept"
    RECLAIM = "reclaim"
    PREEMPT = "preempt"


@dataclass(frozen=True)
class Running:
    """A pod of a running job, or one of the claimant that runs already."""

    name: str
    job: Job
    pod: Pod


@dataclass(frozen=True)
class Unit:
    """Pods that are evicted together: an extra pod of a gang, or the rest of the gang."""

    job: Job
    pods: tuple[Running, ...]
    is_core: bool

    @property
    def gpus(self) -> int:
        """The GPUs of its pods."""
        return sum(each.pod.gpus for each in self.pods)


def pods_of(job: Job) -> list[Running]:
    """Return the pods of `job` that hold room."""
    return [
        Running(f"{job.name}-{number}", job, pod) for number, pod in enumerate(job.pods) if pod.node
    ]


# -- the gang --------------------------------------------------------------------------------------


def waiting_of(job: Job) -> dict[str, Pod]:
    """Return name -> waiting pod of `job`."""
    return {f"{job.name}-{i}": pod for i, pod in enumerate(job.pods) if not pod.node}


def later_of(job: Job) -> dict[str, Pod]:
    """Return name -> pod of the stages that run at the same time, for which room is needed now."""
    return {
        f"{_OTHER}{part.name}-{number}": part.later
        for part in job.parts
        if part.later is not None
        for number in range(part.least)
    }


def has_minimum(job: Job, chosen: Collection[Pod]) -> bool:
    """Return whether `job` has its minimum with its running pods and `chosen`."""
    pods = [*chosen, *(each.pod for each in pods_of(job))]
    roles = Counter(pod.role for pod in pods)
    parts = Counter(pod.part for pod in pods)
    return (
        len(pods) >= job.least
        and all(roles[role] >= least for role, least in job.roles.items())
        and all(parts[part.name] >= part.least for part in job.parts if part.later is None)
    )


def choices(job: Job) -> Iterator[tuple[str, ...]]:
    """Yield the sets of waiting pods that complete the minimum of `job`, none of them needless."""
    waiting = waiting_of(job)
    found: list[tuple[str, ...]] = []
    for size in range(len(waiting) + 1):
        for names in combinations(waiting, size):
            if any(set(smaller) <= set(names) for smaller in found):
                continue
            if has_minimum(job, [waiting[name] for name in names]):
                found.append(names)
                yield names


def units_of(job: Job) -> list[Unit]:
    """Return what is evicted together of `job`: its extra pods, from the last one, then the rest.

    An extra pod is one without which the gang still has its minimum.
    """
    kept = pods_of(job)
    units: list[Unit] = []
    for each in reversed(list(kept)):
        rest = [one for one in kept if one is not each]
        if rest and _still_whole(job, rest):
            units.append(Unit(job, (each,), is_core=False))
            kept = rest
    return [*units, Unit(job, tuple(kept), is_core=True)]


def _still_whole(job: Job, rest: Sequence[Running]) -> bool:
    roles = Counter(each.pod.role for each in rest)
    parts = Counter(each.pod.part for each in rest)
    return (
        len(rest) >= job.least
        and all(roles[role] >= least for role, least in job.roles.items())
        and all(parts[part.name] >= part.least for part in job.parts)
    )


# -- who may be evicted ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Eviction:
    """The question whether some units may go for the claimant."""

    world: World
    request: int
    """What the claim adds to its queue in GPUs; see `request_of`."""

    def allows(self, action: Action, units: Sequence[Unit]) -> bool:
        """Return whether `units` may all be evicted by `action`."""
        if action is Action.ALLOCATE:
            return not units
        if not units or not self._in_order(units):
            return False
        if not all(unit.job.is_preemptible for unit in units):
            return False
        if action is Action.PREEMPT:
            mine = self.world.claimant
            return all(
                unit.job.queue == mine.queue and unit.job.priority < mine.priority for unit in units
            )
        return self._may_reclaim(units, keeping=action is Action.RECLAIM_KEEPING)

    def _in_order(self, units: Sequence[Unit]) -> bool:
        """Return whether all extra pods of each gang go whose core goes."""
        going = {each.name for unit in units for each in unit.pods}
        return all(
            each.name in going for unit in units if unit.is_core for each in pods_of(unit.job)
        )

    def _may_reclaim(self, units: Sequence[Unit], *, keeping: bool) -> bool:
        """Return whether queues above their quota lose `units` to one within its quota."""
        losses: dict[str, list[Unit]] = {}
        for unit in units:
            levels = self.levels(unit.job.queue)
            if levels is None or not self._is_reclaimable(unit.job.queue, levels[1]):
                return False
            if not self._is_within_quota(levels[0], _names(units)):
                return False
            losses.setdefault(levels[1], []).append(unit)
        if not all(self._may_lose(queue, lost) for queue, lost in losses.items()):
            return False
        return not keeping or self._keeps_quotas(units)

    def levels(self, victim: str) -> tuple[str, str] | None:
        """Return the first queues from the root in which the two sides differ; None if related."""
        mine = self.world.chain(self.world.claimant.queue)[::-1]
        theirs = self.world.chain(victim)[::-1]
        for one, other in zip(mine, theirs, strict=False):
            if one != other:
                return one, other
        return None

    def _is_reclaimable(self, queue: str, level: str) -> bool:
        chain = self.world.chain(queue)
        return all(
            self.world.queue_of[name].is_reclaimable for name in chain[: chain.index(level) + 1]
        )

    def _is_within_quota(self, level: str, gone: Collection[str]) -> bool:
        """Return whether the claim is within the quota of its queue, and of those up to `level`.

        What goes in its own tree makes room there.
        """
        chain = self.world.chain(self.world.claimant.queue)
        return all(
            holdings(self.world, name, gone) + self.request <= self.world.queue_of[name].quota
            for name in chain[: chain.index(level) + 1]
        )

    def _may_lose(self, queue: str, units: Sequence[Unit]) -> bool:
        """Return whether there is an order in which `queue` is above its quota before each loss.

        A gang that goes with its extra pods is one loss.
        """
        quota = self.world.queue_of[queue].quota
        whole = {unit.job.name for unit in units if unit.is_core}
        losses = [[unit for unit in units if unit.job.name == name] for name in sorted(whole)]
        losses += [[unit] for unit in units if unit.job.name not in whole]

        def ends(left: Sequence[list[Unit]]) -> bool:
            if not left:
                return True
            gone = _names(unit for loss in losses if loss not in left for unit in loss)
            if holdings(self.world, queue, gone) <= quota:
                return False
            return any(ends([*left[:index], *left[index + 1 :]]) for index in range(len(left)))

        return ends(losses)

    def _keeps_quotas(self, units: Sequence[Unit]) -> bool:
        """Return whether each queue that loses a unit was above its quota and still has it."""
        gone = _names(units)
        losers: set[str] = set()
        for unit in units:
            levels, chain = self.levels(unit.job.queue), self.world.chain(unit.job.queue)
            assert levels is not None, "related queues were refused before"
            losers.update(chain[: chain.index(levels[1]) + 1])
        return all(
            left >= self.world.queue_of[name].quota
            for name in losers
            if (left := holdings(self.world, name, gone)) != holdings(self.world, name)
        )


def _names(units: Iterable[Unit]) -> frozenset[str]:
    return frozenset(each.name for unit in units for each in unit.pods)


# -- what queues hold ------------------------------------------------------------------------------


def holdings(
    world: World, queue: str, gone: Collection[str] = (), *, pinned_only: bool = False
) -> int:
    """Return the GPUs that gangs of `queue`, and of the queues below it, hold without `gone`.

    A gang holds the room of its pods, and the rest of its exclusive domain. `pinned_only`: of
    gangs that are not preemptible.
    """
    total = 0
    for job in world.jobs:
        left = [each for each in pods_of(job) if each.name not in gone]
        if queue not in world.chain(job.queue) or (pinned_only and job.is_preemptible):
            continue
        total += sum(each.pod.gpus for each in left)
        if job.is_exclusive and left:
            nodes = domain_of(world, job)
            inside = sum(each.pod.gpus for each in left if each.pod.node in nodes)
            total += sum(world.node_of[name].gpus for name in nodes) - inside
    return total


def domains(world: World) -> tuple[Domain, ...]:
    """Return the domains that the claimant may have for itself; an empty one if it wants none."""
    claimant = world.claimant
    if not claimant.is_exclusive:
        return ((),)
    return tuple(dict.fromkeys(node.domain(claimant.level) for node in world.nodes))


def request_of(world: World, pods: Collection[Pod], domain: Domain) -> int:
    """Return what `pods` of the claimant, in `domain` of `domains`, add to its queue in GPUs."""
    claimant = world.claimant
    if not domain:
        return sum(pod.gpus for pod in pods)
    if pods_of(claimant):  # its domain is charged already
        return 0
    return sum(node.gpus for node in world.nodes if node.domain(claimant.level) == domain)


def domain_of(world: World, job: Job) -> frozenset[str]:
    """Return the nodes of the domains, of the level that `job` requires, in which it has pods."""
    mine = {world.node_of[each.pod.node].domain(job.level) for each in pods_of(job)}
    return frozenset(node.name for node in world.nodes if node.domain(job.level) in mine)


# -- where pods may be -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Placing:
    """The world after some pods have gone: where the pods of the claim may be."""

    world: World
    gone: frozenset[str]
    domain: Domain = ()
    """The exclusive domain that the claimant takes; see `domains`."""

    @cached_property
    def staying(self) -> tuple[Running, ...]:
        """The running pods that stay."""
        return tuple(
            each for job in self.world.jobs for each in pods_of(job) if each.name not in self.gone
        )

    @cached_property
    def _closed(self) -> frozenset[str]:
        """The nodes in exclusive domains of others."""
        left = {each.job.name for each in self.staying}
        return frozenset(
            name
            for job in self.world.running
            if job.is_exclusive and job.name in left
            for name in domain_of(self.world, job)
        )

    def within_limits(self, pods: Collection[Pod]) -> bool:
        """Return whether no queue exceeds its limit with `pods`, and quotas hold pinned pods."""
        world, claimant = self.world, self.world.claimant
        request = request_of(world, pods, self.domain)
        for name in world.chain(claimant.queue):
            queue = world.queue_of[name]
            if queue.limit != UNLIMITED and (
                holdings(world, name, self.gone) + request > queue.limit
            ):
                return False
            pinned = holdings(world, name, self.gone, pinned_only=True)
            if not claimant.is_preemptible and request and pinned + request > queue.quota:
                return False
        return True

    def may_add(self, pod: Pod, node: Node, placed: Sequence[tuple[Pod, Node]]) -> bool:
        """Return whether `pod` may be on `node` beside `placed`, apart from affinity."""
        return (
            self._has_room(pod, node, placed)
            and (node.is_fast or not pod.wants_fast)
            and not node.is_cordoned
            and node.name not in self._closed
            and (not self.domain or node.domain(self.world.claimant.level) == self.domain)
            and self._is_in_domain(pod, node, placed)
            and self._is_alone(node)
            and not self._is_kept_away(pod, node, placed)
            and self._has_devices(pod, node, placed)
        )

    def _has_room(self, pod: Pod, node: Node, placed: Sequence[tuple[Pod, Node]]) -> bool:
        here = [each.pod for each in self.staying if each.pod.node == node.name]
        here += [one for one, where in placed if where is node]
        return (
            sum(one.gpus for one in here) + pod.gpus <= node.gpus
            and sum(one.cores for one in here) + pod.cores <= node.cores
        )

    def _is_in_domain(self, pod: Pod, node: Node, placed: Sequence[tuple[Pod, Node]]) -> bool:
        """Return whether the gang, and the sub-group of `pod`, stay in one domain each."""
        claimant = self.world.claimant
        mine = [(e.pod, self.world.node_of[e.pod.node]) for e in pods_of(claimant)]
        levels = {part.name: part.level for part in claimant.parts}
        for one, where in (*mine, *placed):
            if claimant.level and where.domain(claimant.level) != node.domain(claimant.level):
                return False
            level = levels.get(pod.part, "") if one.part == pod.part else ""
            if level and where.domain(level) != node.domain(level):
                return False
        return True

    def _is_alone(self, node: Node) -> bool:
        """Return whether an exclusive claimant has no pods of other gangs in the domain."""
        claimant = self.world.claimant
        if not claimant.is_exclusive:
            return True
        return not any(
            each.job.name != claimant.name
            and self.world.node_of[each.pod.node].domain(claimant.level)
            == node.domain(claimant.level)
            for each in self.staying
        )

    def _is_kept_away(self, pod: Pod, node: Node, placed: Sequence[tuple[Pod, Node]]) -> bool:
        """Return whether a term of `pod`, or of a pod that is there, keeps them apart."""
        return any(
            _repels(pod.term, other, node, where) or _repels(other.term, pod, node, where)
            for other, where in self._others(placed)
        )

    def _others(self, placed: Sequence[tuple[Pod, Node]]) -> Iterator[tuple[Pod, Node]]:
        yield from ((each.pod, self.world.node_of[each.pod.node]) for each in self.staying)
        yield from placed

    def _has_devices(self, pod: Pod, node: Node, placed: Sequence[tuple[Pod, Node]]) -> bool:
        """Return whether the claim of `pod` is, or can be, served on `node`."""
        if not pod.claim:
            return True
        others = [*self._others(placed)]
        held = {one.claim for one, where in others if where is node and one.claim}
        if pod.claim in held:
            return True
        if any(one.claim == pod.claim for one, _ in others):
            return False
        return len(held) < node.devices

    def is_reached(self, placed: Sequence[tuple[Pod, Node]]) -> bool:
        """Return whether each pod that goes makes room where the claim is placed, or in its queue.

        So no pod goes only because its rules close a zone of several nodes: the documentation
        excludes that (placement, *Limits*).
        """
        used, claimant = {node.name for _, node in placed}, self.world.claimant
        if claimant.is_exclusive:
            mine = {node.domain(claimant.level) for _, node in placed}
            used = {node.name for node in self.world.nodes if node.domain(claimant.level) in mine}
        full = not replace(self, gone=frozenset()).within_limits([pod for pod, _ in placed])
        return all(
            any(each.pod.node in used for each in pods_of(job))
            or (job.is_exclusive and not used.isdisjoint(domain_of(self.world, job)))
            or full
            for job in self.world.running
            if any(each.name in self.gone for each in pods_of(job))
        )

    def affinity_holds(
        self, placed: Sequence[tuple[Pod, Node]], *, in_any_order: bool = True
    ) -> bool:
        """Return whether the pods can come in an order in which each finds its peers.

        The first pod of a group that selects itself needs none. `in_any_order` allows what
        Kubernetes allows. Without it, less is asked of a scheduler: pods without requirements come
        first, and no plan evicts the peers of a pod to make it the first.
        """
        there = [(each.pod, self.world.node_of[each.pod.node]) for each in self.staying]
        if in_any_order:
            return _can_come(there, list(placed), ())
        there += [each for each in placed if not _requires(each[0])]
        left = [each for each in placed if _requires(each[0])]
        going = {e.pod.app for job in self.world.jobs for e in pods_of(job) if e.name in self.gone}
        return _can_come(there, left, going)


def _requires(pod: Pod) -> bool:
    return pod.term is not None and not pod.term.is_anti


def _can_come(
    there: list[tuple[Pod, Node]], left: list[tuple[Pod, Node]], going: Collection[str]
) -> bool:
    """Return whether `left` can come in some order. `going`: the apps of evicted pods."""
    if not left:
        return True
    return any(
        _finds_peers(pod, node, there, going)
        and _can_come([*there, (pod, node)], left[:index] + left[index + 1 :], going)
        for index, (pod, node) in enumerate(left)
    )


def _finds_peers(
    pod: Pod, node: Node, there: Sequence[tuple[Pod, Node]], going: Collection[str]
) -> bool:
    term = pod.term
    if term is None or not _requires(pod):
        return True
    peers = [where for one, where in there if one.app == term.app]
    if not peers:
        return pod.app == term.app and term.app not in going
    return any(where.domain(term.key) == node.domain(term.key) for where in peers)


def _repels(term: Term | None, other: Pod, node: Node, where: Node) -> bool:
    return (
        term is not None
        and term.is_anti
        and other.app == term.app
        and node.domain(term.key) == where.domain(term.key)
    )


def domain_in(world: World, places: Iterable[str]) -> Domain:
    """Return the exclusive domain of a claim with these `places`; empty if it wants none."""
    claimant, node = world.claimant, next(iter(places), "")
    if not claimant.is_exclusive or not node:
        return ()
    return world.node_of[node].domain(claimant.level)


def claim_pods(job: Job, names: Collection[str]) -> dict[str, Pod]:
    """Return the pods of a claim for `names`, with those of the stages that come with them."""
    waiting = waiting_of(job)
    return {name: waiting[name] for name in names} | later_of(job)


def is_plan(world: World, action: Action, units: Sequence[Unit], places: Mapping[str, str]) -> bool:
    """Return whether the rules allow to evict `units` and to place pods (name -> node)."""
    pods = claim_pods(world.claimant, [name for name in places if not name.startswith(_OTHER)])
    return refusal(world, action, units, places, pods) == ""


def refusal(
    world: World,
    action: Action,
    units: Sequence[Unit],
    places: Mapping[str, str],
    pods: Mapping[str, Pod],
) -> str:
    """Return the rule that refuses a plan; empty if it is allowed."""
    domain = domain_in(world, places.values())
    placing = Placing(world, _names(units), domain)
    if not has_minimum(world.claimant, [p for n, p in pods.items() if not n.startswith(_OTHER)]):
        return "the minimum is not reached"
    if not Eviction(world, request_of(world, list(pods.values()), domain)).allows(action, units):
        return f"{action.value} may not evict these pods"
    if not placing.within_limits(list(pods.values())):
        return "a queue exceeds its limit or quota"
    placed: list[tuple[Pod, Node]] = []
    for name, pod in pods.items():
        node = world.node_of[places[name]]
        if not placing.may_add(pod, node, placed):
            return f"{name} may not be on {node.name}"
        placed.append((pod, node))
    return "" if placing.affinity_holds(placed) else "a pod is without the pods that it requires"
