"""Caches the nodes with devices for a pod's claims.

The plugin asks for every pod with claims. Pods with equal claims share the answers. After a change
in the usage of a pool, only the nodes with access to this pool are checked again. So a gang of
equal pods costs little more than one pod.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bindery.kube.objects.podspec import NodeSelector
from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.content_key import content_key
from bindery.scheduler.model.labels import LabelColumns, term_mask
from bindery.scheduler.model.verdicts import NodeFailure
from bindery.scheduler.model.views import NodesView
from bindery.scheduler.plugins.dra.allocator import ChosenDevice, allocate
from bindery.scheduler.plugins.dra.candidates import AllocationError, Candidates
from bindery.scheduler.plugins.dra.claim_cache import ClaimCache
from bindery.scheduler.plugins.dra.claims import PreparedClaim
from bindery.scheduler.plugins.dra.usage import UsageView

Signature = tuple[PreparedClaim, ...]
"""The claims of a pod without devices."""

FITS = ""
IN_USE = "have too few free devices for its claims"
NO_DEVICES = "have no devices for its claims"

_MOST_TOUCHES = 100_000
"""Above this many touched pools, drop the cache instead of growing the list."""


@dataclass
class _Answers:
    """The answers for all nodes, for one signature."""

    codes: NDArray[np.int16]
    """Node row -> index into `texts`."""
    seen: int
    """The position in `touched` up to which the answers are current."""
    texts: list[str] = field(default_factory=lambda: [FITS])

    def put(self, row: int, text: str) -> None:
        if text not in self.texts:
            self.texts.append(text)
        self.codes[row] = self.texts.index(text)


class NodeFit:
    """The answers by signature; they outlive sessions."""

    def __init__(self, cache: ClaimCache) -> None:
        self._cache = cache
        self._version: tuple[int, int] = (-1, -1)
        self._answers: dict[Signature, _Answers] = {}
        self._candidates: dict[int, Candidates] = {}
        self._masks: dict[bytes, BoolColumn] = {}

    def freshen(self, nodes: NodesView) -> None:
        """Drop the cache if nodes, devices or classes have changed."""
        # `touched` may be cleared only together with the answers that have positions in it.
        version = (self._cache.version, nodes.version)
        if version != self._version or len(self._cache.touched) > _MOST_TOUCHES:
            self._answers.clear()
            self._candidates.clear()
            self._masks.clear()
            self._cache.touched.clear()
            self._version = version

    def selected(self, nodes: NodesView, selector: NodeSelector) -> BoolColumn:
        """Return the mask of the rows selected by `selector`; it is cached: do not change it."""
        key = content_key(selector)
        mask = self._masks.get(key)
        if mask is None:
            columns = LabelColumns(nodes)
            terms = [term_mask(columns, term) for term in selector.node_selector_terms]
            # No term selects no node, as in Kubernetes.
            mask = np.logical_or.reduce(terms) if terms else columns.named(())
            self._masks[key] = mask
        return mask

    def find(
        self, nodes: NodesView, row: int, signature: Signature, usage: UsageView
    ) -> list[list[ChosenDevice]] | None:
        """Return devices of the node at `row` for all claims of `signature`, or None.

        Raises:
            AllocationError: the search is not possible on this node.
        """
        return allocate(signature, self._candidates_of(nodes, row), usage)

    def failures(
        self, nodes: NodesView, signature: Signature, usage: UsageView
    ) -> Sequence[NodeFailure]:
        """Return the nodes without devices for `signature`, by reason."""
        answers = self._answers.get(signature)
        if answers is None:
            answers = _Answers(np.zeros(len(nodes.nodes), dtype=np.int16), 0)
            self._answers[signature] = answers
            rows: Iterable[int] = nodes.rows.values()
        else:
            rows = self._stale_rows(nodes, answers)
        answers.seen = len(self._cache.touched)
        for row in rows:
            answers.put(row, self._verdict(nodes, row, signature, usage))
        return [
            NodeFailure(text, answers.codes == code, is_lasting=text != IN_USE)
            for code, text in enumerate(answers.texts)
            if text != FITS
        ]

    def _verdict(self, nodes: NodesView, row: int, signature: Signature, usage: UsageView) -> str:
        try:
            if self.find(nodes, row, signature, usage) is not None:
                return FITS
            # With nothing in use, the node would fit: so evictions can help.
            if self.find(nodes, row, signature, UsageView(())) is not None:
                return IN_USE
        except AllocationError as error:
            return f"cannot serve its claims: {error}"
        return NO_DEVICES

    def _stale_rows(self, nodes: NodesView, answers: _Answers) -> set[int]:
        rows: set[int] = set()
        for pool in set(self._cache.touched[answers.seen :]):
            names = self._cache.inventory.nodes_of(pool)
            if names is None:  # any node may have access to the pool
                return set(nodes.rows.values())
            rows.update(nodes.rows[name] for name in names if name in nodes.rows)
        return rows

    def _candidates_of(self, nodes: NodesView, row: int) -> Candidates:
        found = self._candidates.get(row)
        if found is None:

            def satisfies(selector: NodeSelector) -> bool:
                return bool(self.selected(nodes, selector)[row])

            pools = self._cache.inventory.for_node(nodes.name(row), satisfies)
            found = self._candidates[row] = Candidates(pools, self._cache.selectors)
        return found
