"""Which levels of a tree a constraint allows, and what is wrong with a constraint."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bindery.scheduler.model.constraints import Constraint
from bindery.scheduler.model.hypernodes import HyperNodeTree
from bindery.scheduler.model.trees import NOWHERE, Tree
from bindery.scheduler.model.views import NodesView
from bindery.scheduler.plugins.topology.book import TreeBook

_MOST_NAMED = 5
"""How many levels or HyperNodes a message lists."""


class TopologyProblem(Exception):  # noqa: N818  # it is no error of the program
    """A constraint that no tree can serve; the message has the reason."""


@dataclass(frozen=True, slots=True)
class Levels:
    """The levels that a constraint allows in its tree."""

    tree: Tree
    allowed: Sequence[int]
    """Deepest first, as numbers of the tree's levels."""
    may_leave: bool
    """Whether pods may also be without a common domain, if no level has room."""

    def name(self, level: int) -> str:
        """Return the name of `level` for messages."""
        return self.tree.levels[level]


def allowed(book: TreeBook, nodes: NodesView, constraint: Constraint) -> Levels:
    """Return the levels that `constraint` allows.

    Raises:
        TopologyProblem: its tree or one of its levels does not exist, or no node has the level.
    """
    tree = book.tree(nodes, constraint.tree)
    if tree is None:
        raise TopologyProblem(f"Topology {constraint.tree.topology} does not exist")
    if isinstance(tree, HyperNodeTree):
        return _of_tiers(tree, constraint)
    required = _level(tree, constraint, constraint.required)
    preferred = _level(tree, constraint, constraint.preferred)
    if required is not None and preferred is not None and preferred < required:
        raise TopologyProblem(
            f"the preferred level {constraint.preferred} is above the required level "
            f"{constraint.required}"
        )
    if required is not None and not _is_in_use(tree, required):
        raise TopologyProblem(
            f"no node has the level {constraint.required} {_above(tree, required)}"
        )
    # Without a preferred level, the deepest is tried first.
    deepest = len(tree.levels) - 1 if preferred is None else preferred
    widest = 0 if required is None else required
    return Levels(tree, range(deepest, widest - 1, -1), required is None)


def _level(tree: Tree, constraint: Constraint, name: str) -> int | None:
    if not name:
        return None
    if name not in tree.levels:
        known = ", ".join(tree.levels[:_MOST_NAMED])
        raise TopologyProblem(
            f"Topology {constraint.tree.topology} has no level {name}; its levels are {known}"
        )
    return list(tree.levels).index(name)


def _is_in_use(tree: Tree, level: int) -> bool:
    return bool((tree.domains(level) != NOWHERE).any())


def _above(tree: Tree, level: int) -> str:
    """Return the condition on levels above `level`, for a message."""
    above = ", ".join(tree.levels[:level])
    return f"together with {above}" if above else "as a label"


def _of_tiers(tree: HyperNodeTree, constraint: Constraint) -> Levels:
    tiers, most = tree.tiers, constraint.tier
    if most is None:
        return Levels(tree, range(len(tiers) - 1, -1, -1), True)
    # The whole cluster is above all HyperNodes, as in Volcano.
    highest = tiers[0] if tiers else 0
    if most == highest + 1 and not constraint.is_exclusive and (tiers or not tree.problems):
        return Levels(tree, range(len(tiers) - 1, -1, -1), True)
    if not tiers:
        raise TopologyProblem(f"there are no HyperNodes{problems_text(tree)}")
    if most > tiers[0]:
        raise TopologyProblem(
            f"tier {most} is above the tree: the highest tier of a HyperNode is {tiers[0]}"
        )
    levels = [level for level in range(len(tiers) - 1, -1, -1) if tiers[level] <= most]
    if not levels:
        raise TopologyProblem(
            f"no HyperNode has tier {most} or a lower one: the lowest is {tiers[-1]}"
        )
    return Levels(tree, levels, False)


def problems_text(tree: Tree) -> str:
    """Return what is wrong with HyperNodes, to be appended to a message; "" if nothing is."""
    problems = tree.problems if isinstance(tree, HyperNodeTree) else {}
    if not problems:
        return ""
    texts = [f"HyperNode {name}: {text}" for name, text in sorted(problems.items())]
    more = f" and {len(texts) - _MOST_NAMED} more" if len(texts) > _MOST_NAMED else ""
    return f" ({'; '.join(texts[:_MOST_NAMED])}{more})"


def padded(tree: Tree, level: int, rows: int) -> NDArray[np.intp]:
    """Return node row -> domain at `level` for exactly `rows` rows."""
    found = tree.domains(level)[:rows]
    if len(found) == rows:
        return found
    return np.concatenate([found, np.full(rows - len(found), NOWHERE, dtype=np.intp)])


def ranked(tree: Tree, level: int, rows: int) -> NDArray[np.intp]:
    """Return node row -> position of its domain in the order of the tree, or NOWHERE."""
    domain, ranks = padded(tree, level, rows), tree.ranks(level)
    return np.where(domain == NOWHERE, NOWHERE, ranks[domain] if len(ranks) else NOWHERE)
