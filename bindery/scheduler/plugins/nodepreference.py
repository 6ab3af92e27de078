"""nodepreference: what a pod would like but does not demand of its node.

Preferred node affinity, and taints of effect PreferNoSchedule. A decade above node placement, as a
wish that a user wrote down counts more than packing.
"""

import numpy as np
from numpy.typing import NDArray

from bindery.kube.taints import tolerates
from bindery.scheduler.model.labels import term_mask
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.model.verdicts import Rows
from bindery.scheduler.plugins.view import SessionView

_DECADE = 100.0
_AVOIDED = 50.0
_SOFT = "PreferNoSchedule"


class NodePreference:
    """Scores 0 to 100 by the weight of the preferred terms that a node matches."""

    name = "nodepreference"

    def node_scores(self, session: SessionView, shape: Shape, rows: Rows) -> NDArray[np.float64]:
        """Return the weighted part of preferred terms that match, less 50 for an avoided taint."""
        scores = np.zeros(len(rows), dtype=np.float64)
        preferred = (shape.node_affinity.preferred if shape.node_affinity else None) or ()
        weights = sum(term.weight for term in preferred)
        for term in preferred:
            matches = term_mask(session.labels, term.preference)[rows]
            scores += _DECADE * term.weight / weights * matches
        if session.has_soft_taints:
            nodes = session.state.nodes.nodes
            for position, row in enumerate(rows):
                node = nodes[row]
                soft = [t for t in (node and node.spec.taints) or () if t.effect == _SOFT]
                if any(not tolerates(shape.tolerations, taint) for taint in soft):
                    scores[position] -= _AVOIDED
        return scores
