"""imagelocality: nodes that have the pod's container images already.

The score decides between nodes that are equal for packing and for the user's preferences: packing
lasts as long as the pod, a pulled image only delays its start.
"""

import numpy as np
from numpy.typing import NDArray

from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.model.verdicts import Rows
from bindery.scheduler.plugins.view import SessionView

_DECADE = 0.08
"""Less than one bucket of `fragmentation`."""


class ImageLocality:
    """Scores nodes by the sizes of the pod's images that they have, as kube-scheduler does."""

    name = "imagelocality"

    def node_scores(
        self, session: SessionView, shape: Shape, rows: Rows
    ) -> NDArray[np.float64] | None:
        """Return 0 to 0.08; None if no node has an image of the pod."""
        if not shape.images.names:
            return None
        percent = session.state.nodes.image_percent(shape.images)[rows]
        return np.asarray(percent * (_DECADE / 100.0), dtype=np.float64)
