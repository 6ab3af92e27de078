"""Reviews queues. Pure.

Refused are cycles, two rules for one resource, and deletions of queues in use. A parent or another
name that does not exist causes a warning.
"""

from collections.abc import Iterator

from bindery.api.states import MOST_QUEUE_LEVELS
from bindery.binder.webhook.answers import Manifest, Review, request_in, verdict
from bindery.binder.webhook.applicants import part, text
from bindery.binder.webhook.directory import Directory
from bindery.binder.webhook.queue_mentions import impossible, unknown_names

_MOST_NAMED = 5


class QueueReview:
    """Reviews a queue with the other queues."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    def validate(self, body: bytes) -> Review:
        """Return the answer to a review of a creation, change or deletion.

        Names of objects that do not exist cause warnings: the objects of one file may come in any
        order.

        Raises:
            MalformedReviewError: the review cannot be read.
        """
        request = request_in(body)
        if request.get("operation") == "DELETE":
            return verdict(request, list(self._left_behind(part(request, "oldObject"))))
        queue = part(request, "object")
        name, spec = text(part(queue, "metadata"), "name"), part(queue, "spec")
        before = part(part(request, "oldObject"), "spec")
        problems = [each for each in impossible(spec) if each not in set(impossible(before))]
        warnings = list(unknown_names(spec, self._directory))
        parent = text(spec, "parent")
        if parent and parent != name and self._directory.queue(parent) is None:
            is_missing = f"parent {parent} does not exist: queue {name} is not served until it does"
            warnings.insert(0, is_missing)
        elif parent and parent != text(before, "parent"):
            problems += self._flaws(name, parent)
        return verdict(request, problems, warnings)

    def _flaws(self, name: str, parent: str) -> Iterator[str]:
        """Yield the problems of the place of the queue `name` below `parent`."""
        path = [name]
        while parent and len(path) <= MOST_QUEUE_LEVELS:
            path.append(parent)
            if parent == name:
                yield f"queue {name} would be its own ancestor: {' -> '.join(path)}"
                return
            above = self._directory.queue(parent)
            parent = (above.spec.parent or "") if above is not None else ""
        levels = len(path) + self._levels_below(name, {name})
        if levels > MOST_QUEUE_LEVELS:
            yield f"the tree of queues would have more than {MOST_QUEUE_LEVELS} levels"

    def _levels_below(self, name: str, seen: set[str]) -> int:
        """Return the number of levels of queues below `name`; `seen` bounds a cycle."""
        below = {
            each.metadata.name for each in self._directory.queues() if each.spec.parent == name
        }
        rest = below - seen
        return max((1 + self._levels_below(each, seen | rest) for each in rest), default=0)

    def _left_behind(self, queue: Manifest) -> Iterator[str]:
        """Yield the objects that would lose their queue.

        Queues in a cycle are not served, so they may be deleted.
        """
        name = text(part(queue, "metadata"), "name")
        above = {each for each, _ in self._directory.chain(text(part(queue, "spec"), "parent"))}
        children = sorted(
            each.metadata.name
            for each in self._directory.queues()
            if each.spec.parent == name and each.metadata.name not in above | {name}
        )
        if children:
            more = f" and {len(children) - _MOST_NAMED} more" if len(children) > _MOST_NAMED else ""
            yield f"queue {name} has queues below it: {', '.join(children[:_MOST_NAMED])}{more}"
            return
        gangs = part(part(queue, "status"), "gangs")
        running, waiting = (_count(gangs, key) for key in ("running", "pending"))
        if running or waiting:
            yield (
                f"queue {name} has gangs: {running} running, {waiting} waiting; "
                "close it (spec.state: Closed), and delete it when it is empty"
            )


def _count(item: Manifest, key: str) -> int:
    found = item.get(key)
    return found if isinstance(found, int) else 0
