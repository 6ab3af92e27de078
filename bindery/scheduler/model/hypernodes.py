"""The tree of HyperNodes: domains that list their members.

Members are nodes or other HyperNodes, by name, regular expression or labels (Volcano's HyperNode).
A HyperNode with a mistake is left out, or a member of it is; `problems` has the reasons. A change
of a node updates one row; a change of a HyperNode, which is rare, resolves the tree again.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bindery.kube.objects.labels import meets
from bindery.kube.objects.topology import HyperNode, Member
from bindery.scheduler.model.trees import NOWHERE, natural

_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


@dataclass
class _Members:
    """The HyperNodes that take nodes, by the kind of selection."""

    by_name: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    by_regex: list[tuple["re.Pattern[str]", str]] = field(default_factory=list)
    by_labels: list[tuple[Member, str]] = field(default_factory=list)

    def of(self, name: str, labels: Mapping[str, str]) -> set[str]:
        """Return the HyperNodes that have the node `name` as a member."""
        found = set(self.by_name.get(name, ()))
        found.update(owner for pattern, owner in self.by_regex if pattern.search(name))
        found.update(owner for member, owner in self.by_labels if _selects(member, labels))
        return found


class HyperNodeTree:
    """The HyperNodes and the nodes in them. `resolve` must be called after changes of either."""

    def __init__(self) -> None:
        self._nodes: dict[int, tuple[str, Mapping[str, str]]] = {}
        """Row -> name and labels of its node."""
        self._hyper_nodes: dict[str, HyperNode] = {}
        self._is_stale = True
        self._stale_rows: set[int] = set()
        self.problems: dict[str, str] = {}
        """HyperNode -> what is wrong with it."""
        self._members = _Members()
        self._parents: dict[str, str] = {}
        self._tiers: list[int] = []
        """The tiers in use, highest first: the levels."""
        self._ids: dict[str, tuple[int, int]] = {}
        """HyperNode -> its level, and its number there."""
        self._names: list[list[str]] = []
        self._columns: NDArray[np.intp] = np.zeros((0, 0), dtype=np.intp)
        self._ranks: list[NDArray[np.intp]] = []

    # -- changes -------------------------------------------------------------------------------

    def put_node(self, row: int, name: str, labels: Mapping[str, str]) -> None:
        """Add or update the node at `row`."""
        self._nodes[row] = (name, labels)
        self._stale_rows.add(row)

    def remove_node(self, row: int) -> None:
        """Remove the node at `row`."""
        self._nodes.pop(row, None)
        self._stale_rows.add(row)

    def put(self, hyper_node: HyperNode) -> None:
        """Add or update a HyperNode."""
        self._hyper_nodes[hyper_node.metadata.name] = hyper_node
        self._is_stale = True

    def remove(self, name: str) -> None:
        """Remove a HyperNode."""
        self._hyper_nodes.pop(name, None)
        self._is_stale = True

    def resolve(self) -> None:
        """Bring the arrays up to date."""
        if self._is_stale:
            self._resolve_structure()
            self._stale_rows = set(self._nodes)
            self._columns = np.full((len(self._tiers), 0), NOWHERE, dtype=np.intp)
            self._is_stale = False
        if not self._stale_rows:
            return
        rows = max(self._stale_rows) + 1
        if rows > self._columns.shape[1]:
            more = np.full((len(self._tiers), rows - self._columns.shape[1]), NOWHERE, np.intp)
            self._columns = np.concatenate([self._columns, more], axis=1)
        for row in self._stale_rows:
            self._columns[:, row] = NOWHERE
            if row in self._nodes:
                self._place(row)
        self._stale_rows.clear()

    # -- the tree ------------------------------------------------------------------------------

    @property
    def levels(self) -> Sequence[str]:
        """The tiers, highest first."""
        return [f"tier {tier}" for tier in self._tiers]

    @property
    def tiers(self) -> Sequence[int]:
        """The tiers, highest first: those of `levels`."""
        return self._tiers

    def domains(self, level: int) -> NDArray[np.intp]:
        """Return node row -> HyperNode at `level`; rows beyond the last known node are missing."""
        return np.asarray(self._columns[level])

    def names(self, level: int) -> Sequence[str]:
        """Return the names of the HyperNodes at `level`."""
        return self._names[level]

    def ranks(self, level: int) -> NDArray[np.intp]:
        """Return HyperNode -> its position at `level`, in the order of the tree."""
        return self._ranks[level]

    # -- resolving -----------------------------------------------------------------------------

    def _resolve_structure(self) -> None:
        self.problems, self._members, self._parents = {}, _Members(), {}
        children: dict[str, list[str]] = {}
        for name in sorted(self._hyper_nodes):
            children[name] = self._read(name)
        for name in _in_cycles(children):
            self.problems[name] = "it is its own ancestor: a cycle"
        usable = {n: h for n, h in self._hyper_nodes.items() if n not in self.problems}
        self._link(children, usable)
        self._tiers = sorted({each.spec.tier for each in usable.values()}, reverse=True)
        self._number(usable)

    def _read(self, name: str) -> list[str]:
        """Enter the members of the HyperNode `name`; return its child HyperNodes."""
        children: list[str] = []
        for member in self._hyper_nodes[name].spec.members:
            problem = _problem(member)
            if problem:
                self.problems[name] = problem
            elif member.type == "HyperNode":
                children += self._children(member)
            elif member.name:
                self._members.by_name[member.name].append(name)
            elif member.regex:
                self._members.by_regex.append((re.compile(member.regex), name))
            else:
                self._members.by_labels.append((member, name))
        return children

    def _children(self, member: Member) -> list[str]:
        if member.name:
            return [member.name]
        pattern = re.compile(member.regex or "")
        return [name for name in self._hyper_nodes if pattern.search(name)]

    def _link(self, children: Mapping[str, list[str]], usable: Mapping[str, HyperNode]) -> None:
        """Find the parent of each HyperNode: the lowest that lists it, then the first by name."""
        by_tier = sorted(usable, key=lambda name: (usable[name].spec.tier, name))
        for name in by_tier:
            for child in children[name]:
                if child not in self._hyper_nodes:
                    self.problems[name] = f"its member {child} does not exist"
                elif child not in usable:
                    continue
                elif usable[child].spec.tier >= usable[name].spec.tier:
                    self.problems[name] = f"the tier of its member {child} is not below its own"
                elif child in self._parents and self._parents[child] != name:
                    self.problems[name] = (
                        f"its member {child} belongs to {self._parents[child]} already"
                    )
                else:
                    self._parents[child] = name

    def _number(self, usable: Mapping[str, HyperNode]) -> None:
        level_of = {tier: level for level, tier in enumerate(self._tiers)}
        self._names = [[] for _ in self._tiers]
        self._ids = {}
        # In the order of the tree: by the names from the top down.
        for name in sorted(usable, key=lambda name: [natural(each) for each in self._path(name)]):
            level = level_of[usable[name].spec.tier]
            self._ids[name] = (level, len(self._names[level]))
            self._names[level].append(name)
        self._ranks = [np.arange(len(names), dtype=np.intp) for names in self._names]

    def _path(self, name: str) -> list[str]:
        path = [name]
        while path[-1] in self._parents:
            path.append(self._parents[path[-1]])
        return path[::-1]

    def _place(self, row: int) -> None:
        """Write the HyperNodes of the node at `row`."""
        name, labels = self._nodes[row]
        owners = [owner for owner in self._members.of(name, labels) if owner in self._ids]
        # The lowest HyperNode decides; then what it is in; then others that list the node.
        for owner in sorted(owners, key=lambda owner: (-self._ids[owner][0], natural(owner))):
            for each in reversed(self._path(owner)):
                level, number = self._ids[each]
                there = self._columns[level, row]
                if there not in (NOWHERE, number):
                    other = self._names[level][there]
                    self.problems[each] = f"its node {name} belongs to {other} already"
                    break
                self._columns[level, row] = number


def _problem(member: Member) -> str:
    """Return what is wrong with `member`; "" if nothing is."""
    ways = [way for way in (member.name, member.regex, member.selector) if way is not None]
    if member.type not in ("Node", "HyperNode"):
        return f"a member has the type {member.type}: Node or HyperNode is expected"
    if len(ways) != 1 or not ways[0]:
        return "a member needs exactly one of name, regex and selector"
    if member.regex is not None:
        try:
            re.compile(member.regex)
        except (re.error, RecursionError, OverflowError) as error:
            return f"the regular expression {member.regex} is invalid: {error}"
    if member.selector is not None:
        if member.type == "HyperNode":
            return "members of type HyperNode have no selector"
        for item in member.selector.match_expressions:
            if item.operator not in _OPERATORS:
                return f"a selector has the operator {item.operator}"
    return ""


def _selects(member: Member, labels: Mapping[str, str]) -> bool:
    selector = member.selector
    assert selector is not None, "members by labels have a selector"
    if any(labels.get(key) != value for key, value in selector.match_labels.items()):
        return False
    return all(meets(item, labels) for item in selector.match_expressions)


def _in_cycles(children: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the HyperNodes that are on a cycle (Tarjan's components, without recursion)."""
    found: list[str] = []
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    for root in children:
        if root in index:
            continue
        work = [(root, iter(children[root]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            name, rest = work[-1]
            child = next(rest, None)
            if child is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[name])
                if low[name] == index[name]:
                    component = stack[stack.index(name) :]
                    del stack[len(stack) - len(component) :]
                    on_stack.difference_update(component)
                    if len(component) > 1 or name in children[name]:
                        found += component
            elif child not in children:
                continue
            elif child not in index:
                index[child] = low[child] = len(index)
                stack.append(child)
                on_stack.add(child)
                work.append((child, iter(children[child])))
            elif child in on_stack:
                low[name] = min(low[name], index[child])
    return sorted(found)
