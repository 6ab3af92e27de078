"""Problems with objects, for events on them."""

from dataclasses import dataclass

from bindery.kube.objects.watched import Meta


@dataclass(frozen=True, slots=True)
class ObjectProblem:
    """A problem with an object, for an event on that object."""

    api_version: str
    kind: str
    meta: Meta
    reason: str
    """One CamelCase word."""
    message: str
