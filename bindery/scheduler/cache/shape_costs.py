"""A bound on the shapes that the waiting pods of one namespace may have.

Owned by pod_shapes.py. Planning tries each different shape by itself, in every cycle, so each takes
time from all jobs. A pod with a further shape is not planned until others of its namespace have a
node or go, and its condition has the reason.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from bindery.scheduler.model.jobs import Uid
from bindery.scheduler.model.shapes import Shape

MOST_SHAPES = 1_000
"""How many different shapes the waiting pods of a namespace may have."""

_TOO_MANY = (
    f"the waiting pods of its namespace differ in {MOST_SHAPES} ways in what decides about their "
    "places, such as requests, selectors and tolerations, which is the maximum: it waits until "
    "some of them have a node or go"
)


class ShapeCosts:
    """The shapes of waiting pods by namespace."""

    def __init__(self) -> None:
        self._in_namespace: defaultdict[str, Counter[Shape]] = defaultdict(Counter)
        self._of_pod: dict[Uid, tuple[str, Shape]] = {}
        """The pods whose shapes count."""
        self._refused: defaultdict[str, dict[Uid, Shape]] = defaultdict(dict)
        """Namespace -> the pods that wait for their turn, the oldest first."""
        self._freed: set[str] = set()
        """Namespaces with fewer shapes than before."""

    def note(self, uid: Uid, namespace: str, shape: Shape) -> str:
        """Note that a waiting pod has `shape`; return why it is not planned, "" if it is."""
        if self._of_pod.get(uid) == (namespace, shape):
            return ""
        self._uncount(uid)
        counts = self._in_namespace[namespace]
        if shape not in counts and len(counts) >= MOST_SHAPES:
            self._refused[namespace][uid] = shape
            return _TOO_MANY
        self._drop_refused(uid, namespace)
        counts[shape] += 1
        self._of_pod[uid] = namespace, shape
        return ""

    def forget(self, uid: Uid, namespace: str) -> None:
        """Forget a pod: it has gone, has a node, or is not planned for another reason."""
        self._drop_refused(uid, namespace)
        self._uncount(uid)

    def due(self) -> Iterator[Uid]:
        """Yield the refused pods that may be noted again, as there may be room for their shapes."""
        freed, self._freed = self._freed, set()
        for namespace in sorted(freed):
            counts: Mapping[Shape, int] = self._in_namespace.get(namespace, {})
            for uid, shape in list(self._refused.get(namespace, {}).items()):
                # The caller notes each before it asks for the next one.
                if shape in counts or len(counts) < MOST_SHAPES:
                    yield uid

    def _uncount(self, uid: Uid) -> None:
        known = self._of_pod.pop(uid, None)
        if known is None:
            return
        namespace, shape = known
        counts = self._in_namespace[namespace]
        counts[shape] -= 1
        if not counts[shape]:
            del counts[shape]
            if namespace in self._refused:
                self._freed.add(namespace)
            if not counts:
                del self._in_namespace[namespace]

    def _drop_refused(self, uid: Uid, namespace: str) -> None:
        refused = self._refused.get(namespace)
        if refused is not None:
            refused.pop(uid, None)
            if not refused:
                del self._refused[namespace]
