"""The PriorityClasses, and what follows from them.

Written by cluster.py, read by tasks.py and the session. A class that does not exist has no value:
its gangs wait. What pods carry was settled by the API server's admission when they were created.
"""

from bindery.kube.objects import PriorityClass


class PriorityClasses:
    """The classes by name."""

    def __init__(self) -> None:
        self._classes: dict[str, PriorityClass] = {}
        self.default = 0
        """The priority of a pod to which admission has given none: of the class with
        `globalDefault`; of several, the smallest, as Kubernetes has it."""

    def __contains__(self, name: str) -> bool:
        return name in self._classes

    def put(self, item: PriorityClass) -> None:
        """Take in a class."""
        self._classes[item.metadata.name] = item
        self._find_default()

    def remove(self, name: str) -> None:
        """Forget a class."""
        self._classes.pop(name, None)
        self._find_default()

    def value(self, name: str | None) -> int | None:
        """Return the priority of the class `name`; None if it does not exist, or none is named."""
        found = self._classes.get(name or "")
        return found.value if found is not None else None

    def never_preempts(self, name: str | None) -> bool:
        """Return whether nobody may be evicted for gangs of the class `name`."""
        found = self._classes.get(name or "")
        return found is not None and found.preemption_policy == "Never"

    def _find_default(self) -> None:
        values = (item.value for item in self._classes.values() if item.global_default)
        self.default = min(values, default=0)
