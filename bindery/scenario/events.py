"""Events from outside a scenario's cluster: requests in flight, changes, faults.

Read by `format`; `cluster` plays the events. `planning` and `binding` ask `Faults` before each call
to the API server that a scenario can make fail.
"""

from collections.abc import Collection, Iterable
from typing import Literal

from pydantic import Field, model_validator

from bindery.api.base import NonNegative
from bindery.api.bindrequest import Phase
from bindery.scenario.fields import Duration, Name, Positive, ScenarioModel, Texts
from bindery.scenario.jobs import ScenarioJob
from bindery.scenario.nodes import ScenarioNode


class InFlightRequest(ScenarioModel):
    """A BindRequest that exists when the scenario begins."""

    pods: Texts = Field(min_length=1)
    uid: str = ""
    """The UID that the request names, when it is another pod's than today's."""
    node: Name
    phase: Phase = Phase.PENDING
    failed_attempts: NonNegative = 0
    backoff_limit: NonNegative = 5
    node_pool: str = ""
    age: Duration = 0.0
    labels: dict[str, str] = Field(default_factory=dict)


class Event(ScenarioModel):
    """A change before cycle number `before`; the first cycle is 1."""

    before: Positive
    ungate: Texts = ()
    delete: Texts = ()
    fail: Texts = ()
    succeed: Texts = ()
    node: ScenarioNode | None = None
    """New values for the keys that are written; the others stay."""
    job: ScenarioJob | None = None
    advance: Duration = 0.0

    @model_validator(mode="after")
    def _does_something(self) -> "Event":
        if not self.model_fields_set - {"before"}:
            raise ValueError("an event needs ungate, delete, fail, succeed, node, job or advance")
        return self


class Fault(ScenarioModel):
    """Calls that the API server answers with an error."""

    call: Literal["createBindRequest", "deleteBindRequest", "evict", "bind", "patchStatus"]
    pod: str | None = None
    """The calls that concern this pod; default: all."""
    error: int = Field(default=500, ge=400, le=599)
    times: Positive = 1


class Faults:
    """The faults of a scenario, and the number of calls that each will still fail."""

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
