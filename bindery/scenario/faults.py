"""Failing calls to the in-memory API server.

Asked by `runner` and `binding` before each call that a scenario can make fail.
"""

from collections.abc import Collection, Iterable

from bindery.scenario.events import Fault


class Faults:
    """The faults of a scenario and how many calls each will still fail."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self._faults = tuple(faults)
        self._times = {index: fault.times for index, fault in enumerate(self._faults)}

    def error(self, call: str, pods: Collection[str]) -> int | None:
        """Return the status code with which `call`, about `pods`, fails, and count it.

        None: the call succeeds.
        """
        for index, fault in enumerate(self._faults):
            concerns = fault.pod is None or fault.pod in pods
            if fault.call == call and concerns and self._times[index] > 0:
                self._times[index] -= 1
                return fault.error
        return None
