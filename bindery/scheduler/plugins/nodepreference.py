"""nodepreference: preferred node affinity, and taints with the effect PreferNoSchedule.

The scores are above those of node placement, because an explicit wish of a user counts more than
packing.
"""

import numpy as np
from numpy.typing import NDArray

from bindery.kube.objects.taints import tolerates
from bindery.scheduler.model.labels import term_mask
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.model.verdicts import Rows
from bindery.scheduler.plugins.view import SessionView

_DECADE = 100.0
_AVOIDED = 50.0
_SOFT = "PreferNoSchedule"


class NodePreference:
    """Scores nodes 0 to 100 by the weights of matching preferred terms."""

    name = "nodepreference"

    def node_scores(
        self, session: SessionView, shape: Shape, rows: Rows
    ) -> NDArray[np.float64] | None:
        """Return 100 * matching weight / total weight, minus 50 for an untolerated soft taint."""
        preferred = (shape.node_affinity.preferred if shape.node_affinity else None) or ()
        if not preferred and not session.has_soft_taints:
            return None
        scores = np.zeros(len(rows), dtype=np.float64)
        weights = sum(term.weight for term in preferred)
        for term in preferred:
            matches = term_mask(session.labels, term.preference)[rows]
            scores += _DECADE * term.weight / weights * matches
        # The loop over nodes is too slow for the common case, a cluster without soft taints.
        if session.has_soft_taints:
            nodes = session.state.nodes.nodes
            for position, row in enumerate(rows):
                node = nodes[row]
                soft = [t for t in (node and node.spec.taints) or () if t.effect == _SOFT]
                if any(not tolerates(shape.tolerations, taint) for taint in soft):
                    scores[position] -= _AVOIDED
        return scores
