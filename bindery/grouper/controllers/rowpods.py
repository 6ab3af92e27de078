"""The pods that follow from a row of the table: the number of each part, its labels and template.

Used by `expansion`. A pod of a part without a template has no `spec`: that is enough for its
PodGroup, and too little to look for a node.
"""

from collections.abc import Iterator, Mapping, Sequence

from bindery.grouper.controllers.making import Body, NotKnownError, body, demanded, name_of, pod
from bindery.grouper.table.facts import KubeObject
from bindery.grouper.table.parts import Filler, Observed, PlannedSubGroup
from bindery.grouper.table.paths import find, integer
from bindery.grouper.table.rows import Row
from bindery.grouper.table.walk import link_of


def row_pods(item: KubeObject, row: Row) -> Iterator[Body]:
    """Yield the pods of `item`, whose row is `row`.

    A path of the row that does not fit the object is a problem of the plan.

    Raises:
        ExpansionError: a number of pods is negative or too large.
    """
    parts = Filler(row, link_of(item), Observed(())).parts().value
    leaves = [part for part in parts if not part.is_inner]
    for part in leaves:
        rank = _rank_label(row, part)
        start = _start(row, item) if not part.name else _is_behind_first(part, leaves, rank)
        for index in range(_count(part, row)):
            labels = dict(part.labels)
            if row.per is not None and row.per.label is not None:
                labels[row.per.label] = "0"
            if rank:
                labels[rank] = str(start + index)
            yield _pod(item, part, start + index, labels)


def _count(part: PlannedSubGroup, row: Row) -> int:
    """Return how many pods there are at first; of an unknown number, as many as are needed."""
    is_least = part.count is None or (row.left and not part.name)
    count = part.least if part.count is None or is_least else part.count
    return demanded(count, part.name or "the number of pods")


def _rank_label(row: Row, part: PlannedSubGroup) -> str:
    """Return the label with the index of a pod of `part`; "" if the row names none."""
    return next((label for label in row.rank if label not in part.labels), "")


def _is_behind_first(part: PlannedSubGroup, leaves: Sequence[PlannedSubGroup], rank: str) -> int:
    """Return 1 if another part has the pod with the index 0, else 0."""
    return int(any(_has_first(each.labels, part.labels, rank) for each in leaves))


def _has_first(labels: Mapping[str, str], others: Mapping[str, str], rank: str) -> bool:
    rest = {key: value for key, value in labels.items() if key != rank}
    return labels.get(rank) == "0" and rest.items() <= others.items() and labels != others


def _start(row: Row, item: KubeObject) -> int:
    """Return the index of the first pod."""
    found = [find(path, item) for path in (row.ordered.start if row.ordered else ())]
    return next((integer(each) for each in found if each is not None), 0)


def _pod(item: KubeObject, part: PlannedSubGroup, index: int, labels: Mapping[str, str]) -> Body:
    name = "-".join(filter(None, (name_of(item), part.name, str(index))))
    try:
        return pod(name, part.template, labels)
    except NotKnownError:
        return {**body("v1", "Pod", name, {"metadata": {"labels": labels}}), "spec": None}
