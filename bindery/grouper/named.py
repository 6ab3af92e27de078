"""The gangs that pods name themselves: by `spec.schedulingGroup`, or by the marks of others.

Beside the forest of owners: a pod is in one of the two. Wires the pods and the objects that they
name to the pure plans of `upstream` and `marks`. The invariant: a gang is planned again after every
change of a pod that names it, and of an object that its plan has looked at.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from bindery.api import names
from bindery.api.states import ENDED_POD_PHASES
from bindery.grouper.marks import contracts
from bindery.grouper.marks.contracts import CONTRACTS, Contract, MarkedGang
from bindery.grouper.objects import WrittenGroup, as_mapping
from bindery.grouper.owners import KindKey, Missing, Owners
from bindery.grouper.table.facts import PodFacts
from bindery.grouper.table.groups import GroupPlan, WantedObject
from bindery.grouper.upstream import planning, trees
from bindery.grouper.upstream.adapters import ADAPTERS
from bindery.grouper.upstream.model import COMPOSITE, GROUP, WORKLOAD, Adapter, Body, UpstreamGroup
from bindery.grouper.upstream.reports import UpstreamFinding
from bindery.grouper.upstream.trees import NotKnownYetError

UPSTREAM: Final = "upstream"

KINDS: Final = frozenset(
    {KindKey(each.api_version, kind) for each in ADAPTERS for kind in each.kinds}
    | {
        KindKey(f"{each.kind.group}/{each.kind.version}", each.kind.kind)
        for each in CONTRACTS
        if each.kind is not None
    }
)
"""The kinds of the objects that pods name. They are read whole."""


class GangKey(NamedTuple):
    """What pods name."""

    source: str
    """`upstream`, or the name of a contract."""
    namespace: str
    name: str

    @property
    def root(self) -> str:
        """The key as one text, in the place of the UID of a workload's root."""
        return f"{self.source}:{self.namespace}/{self.name}"


def is_named(root: str) -> bool:
    """Return whether `root` is the key of such a gang; UIDs have no colon."""
    return ":" in root


@dataclass(frozen=True)
class UpstreamReport:
    """What goes back to upstream's groups of one gang."""

    groups: tuple[tuple[UpstreamGroup, Adapter], ...] = ()
    """The root first."""
    error: str = ""
    pods: tuple[PodFacts, ...] = ()

    def finding(self, written: Iterable[WrittenGroup]) -> UpstreamFinding:
        """Return what the conditions are made of; `written`: our PodGroups of the gang."""
        found = [each for group in written for each in group.status.conditions or ()]
        return UpstreamFinding(found, self.error, self.pods)


@dataclass(frozen=True)
class Planned:
    """One gang, planned."""

    plan: GroupPlan
    uids: tuple[str, ...] = ()
    """The UIDs that may own our PodGroup."""
    report: UpstreamReport = field(default_factory=UpstreamReport)
    pods: tuple[PodFacts, ...] = ()

    @property
    def bound_under(self) -> frozenset[str]:
        """The UIDs of PodGroups under which pods of the gang are bound."""
        return bound_under(self.pods)


def bound_under(pods: Iterable[PodFacts]) -> frozenset[str]:
    """Return the UIDs of the PodGroups under which `pods` are bound."""
    bound = (pod for pod in pods if pod.is_bound and pod.phase not in ENDED_POD_PHASES)
    return frozenset(pod.annotations.get(names.CHARGED_GROUP_ANNOTATION, "") for pod in bound)


_NOT_PLANNED: Final = Planned(GroupPlan())


class NamedGangs:
    """All gangs that pods name themselves."""

    def __init__(
        self, owners: Owners, find: Callable[[WantedObject, str], Mapping[str, Any] | Missing]
    ) -> None:
        """`find` returns an object that a plan wants, for the root with the given key."""
        self._owners = owners
        self._find = find
        self._keys: dict[str, GangKey] = {}
        """Pod UID -> the gang that it names."""
        self._pods: dict[GangKey, dict[str, PodFacts]] = {}
        self._strangers: dict[GangKey, dict[str, PodFacts]] = {}
        """Pods of other schedulers, by the upstream group that they name."""
        self._roots: dict[str, GangKey] = {}
        self._tops: dict[GangKey, GangKey] = {}
        """Key of a group -> that of the CompositePodGroup above all, which stands for it."""
        self._owned: dict[str, str] = {}
        """UID of an owner of our PodGroup -> root."""
        self._owners_of: dict[str, tuple[str, ...]] = {}
        self._changed: dict[str, None] = {}

    # ---- changes --------------------------------------------------------------------------------

    def take_pod(self, pod: PodFacts) -> bool:
        """Take note of a pod's state; return whether it names its gang."""
        key = _key(pod)
        if self._keys.get(pod.uid, key) != key:
            self.lose_pod(pod.uid)
        if key is None:
            return False
        pods = self._pods.setdefault(key, {})
        if pods.get(pod.uid) != pod:
            self._keys[pod.uid] = key
            pods[pod.uid] = pod
            self._roots[key.root] = key
            self._mark(key)
        return True

    def lose_pod(self, uid: str) -> None:
        """Take note that a pod is gone, or names another gang."""
        key = self._keys.pop(uid, None)
        if key is None:
            return
        del self._pods[key][uid]
        self._mark(key)
        if not self._pods[key]:
            del self._pods[key]
            if key.source != UPSTREAM:  # upstream's group still hears what became of its pods
                self._drop(key)

    def take_stranger(self, pod: PodFacts, *, gone: bool) -> None:
        """Take note of a pod of another scheduler."""
        if not pod.scheduling_group:
            return
        key = GangKey(UPSTREAM, pod.namespace, pod.scheduling_group)
        pods = self._strangers.setdefault(key, {})
        if gone:
            pods.pop(pod.uid, None)
            if not pods:
                del self._strangers[key]
        elif pods.get(pod.uid) == pod:
            return
        else:
            pods[pod.uid] = pod
        self._mark(key)

    def mark(self, root: str) -> None:
        """Take note that an object has changed which the plan of `root` has looked at."""
        if root in self._roots:
            self._changed[root] = None

    def mark_owned(self, uid: str) -> bool:
        """Take note that a PodGroup of ours has changed; return whether its owner is known here."""
        root = self._owned.get(uid)
        if root is not None:
            self.mark(root)
        return root is not None

    def mark_all(self, namespace: str = "") -> None:
        """Take note that something has changed for all gangs in `namespace`; "": in any."""
        for root, key in self._roots.items():
            if namespace in ("", key.namespace):
                self._changed[root] = None

    def take_changed(self) -> list[str]:
        """Return the roots that have changed since the last call."""
        changed, self._changed = list(self._changed), {}
        return changed

    def roots(self) -> list[str]:
        """Return all roots."""
        return list(self._roots)

    def has(self, root: str) -> bool:
        """Return whether pods name this gang, or did while its upstream group exists."""
        return root in self._roots

    def uses_upstream(self) -> bool:
        """Return whether pods of ours are in groups of upstream's."""
        return any(key.source == UPSTREAM for key in self._pods)

    def _drop(self, key: GangKey) -> None:
        """Forget a gang without pods."""
        self._roots.pop(key.root, None)
        self._owners.forget(key.root)
        self._tops.pop(key, None)
        self._forget_owners(key.root)

    def _forget_owners(self, root: str) -> None:
        for uid in self._owners_of.pop(root, ()):
            if self._owned.get(uid) == root:
                del self._owned[uid]

    def _mark(self, key: GangKey) -> None:
        self._changed[key.root] = None
        top = self._tops.get(key)
        if top is not None:
            self._changed.update(dict.fromkeys(self._siblings(top)))

    def _siblings(self, top: GangKey) -> list[str]:
        return [key.root for key, above in self._tops.items() if above == top]

    # ---- plans ----------------------------------------------------------------------------------

    def plan(self, root: str) -> Planned:
        """Return the PodGroup of a gang that is there."""
        key = self._roots[root]
        planned = self._plan_upstream(key) if key.source == UPSTREAM else self._plan_marked(key)
        self._forget_owners(root)
        if root in self._roots:
            self._owners_of[root] = planned.uids
            self._owned.update(dict.fromkeys(planned.uids, root))
        return planned

    def _plan_marked(self, key: GangKey) -> Planned:
        contract = next(each for each in CONTRACTS if each.name == key.source)
        body, is_installed = self._named_by(contract, key)
        if body is None and is_installed is None:
            return _NOT_PLANNED
        gang = MarkedGang(
            contract=contract,
            name=key.name,
            namespace=key.namespace,
            pods=_pods_of([key], self._pods),
            body=body,
            is_kind_installed=bool(is_installed),
        )
        made = contracts.plan(gang)
        uids = tuple(group.owner.uid for group in made.groups)
        return Planned(made, uids, pods=tuple(gang.pods))

    def _named_by(self, contract: Contract, key: GangKey) -> tuple[Body | None, bool | None]:
        """Return the object of a mark, and whether its kind is installed; None: not known yet."""
        kind = contract.kind
        if kind is None:
            return None, False
        at = KindKey(f"{kind.group}/{kind.version}", kind.kind)
        found = self._owners.find_named(at, key.namespace, key.name, key.root)
        if found is Missing.PENDING:
            return None, None
        if isinstance(found, Missing):
            return None, found is not Missing.NOT_INSTALLED
        return found, True

    def _plan_upstream(self, key: GangKey) -> Planned:
        objects = _Objects(self._owners, key)
        try:
            tree = trees.tree(objects, key.name)
            workload = self._workload(objects, tree)
        except NotKnownYetError:
            return _NOT_PLANNED
        if not tree:
            if key not in self._pods:
                self._drop(key)
                return _NOT_PLANNED
            missing = contracts.missing_group(_pods_of([key], self._pods), key.name, GROUP)
            return Planned(GroupPlan(problems=(missing,)))
        (root, adapter), *below = tree
        leaves = sorted(group.name for group, _ in tree if not group.is_composite)
        keys = [GangKey(UPSTREAM, key.namespace, name) for name in leaves]
        self._note_tree(root, key, keys)
        gang = planning.UpstreamGang(
            root=root,
            below=[group for group, _ in below],
            pods=_pods_of(keys, self._pods),
            strangers=_pods_of(keys, self._strangers),
            workloads=workload,
            demands_one_priority=adapter.demands_one_priority,
        )
        outcome = self._with_controllers(gang, key)
        uids = tuple(group.reference.uid for group, _ in tree)
        pods = tuple(gang.pods)
        return Planned(outcome.plan, uids, UpstreamReport(tuple(tree), outcome.error, pods), pods)

    def _note_tree(self, root: UpstreamGroup, key: GangKey, keys: Iterable[GangKey]) -> None:
        """Remember which groups are planned together, so that a pod of one is one of all."""
        if root.is_composite:
            top = GangKey(UPSTREAM, key.namespace, f"{COMPOSITE}/{root.name}")
            self._tops.update(dict.fromkeys(keys, top))
        else:
            self._tops.pop(key, None)

    def _workload(self, objects: "_Objects", tree: list[trees.ReadGroup]) -> dict[str, Body]:
        """Return the Workload of the root by its name; empty if there is none."""
        name = tree[0][0].workload if tree else ""
        found = trees.find(objects, WORKLOAD, name) if name else None
        return {} if found is None else {name: found[0]}

    def _with_controllers(self, gang: planning.UpstreamGang, key: GangKey) -> planning.UpstreamPlan:
        """Plan, with the object that the Workload was made for, if that can be read."""
        outcome = planning.plan(gang)
        found = {
            (each.group, each.kind, each.name): body
            for each in outcome.plan.wanted
            if not isinstance(body := self._find(each, key.root), Missing)
        }
        if not found:
            return outcome
        return planning.plan(replace(gang, controllers=found))


@dataclass(frozen=True)
class _Objects:
    """Upstream's objects in the namespace of one gang."""

    owners: Owners
    key: GangKey

    def get(self, adapter: Adapter, kind: str, name: str) -> Body | None:
        at, key = KindKey(adapter.api_version, kind), self.key
        found = self.owners.find_named(at, key.namespace, name, key.root)
        if found is Missing.PENDING:
            raise NotKnownYetError
        return None if isinstance(found, Missing) else found

    def all(self, adapter: Adapter, kind: str) -> Iterable[Body]:
        at = KindKey(adapter.api_version, kind)
        for owner in self.owners.find_all(at, self.key.namespace, self.key.root):
            yield as_mapping(adapter.api_version, kind, owner)


def _pods_of(
    keys: Iterable[GangKey], known: Mapping[GangKey, Mapping[str, PodFacts]]
) -> list[PodFacts]:
    """Return the pods that name one of `keys`, by UID."""
    found = [pod for key in keys for pod in known.get(key, {}).values()]
    return sorted(found, key=lambda pod: pod.uid)


def _key(pod: PodFacts) -> GangKey | None:
    """Return the gang that `pod` names; None for one that the owners decide about."""
    if contracts.is_left_to_owners(pod):
        return None
    if pod.scheduling_group:
        return GangKey(UPSTREAM, pod.namespace, pod.scheduling_group)
    found = contracts.contract_of(pod)
    return None if found is None else GangKey(found[0].name, pod.namespace, found[1])
