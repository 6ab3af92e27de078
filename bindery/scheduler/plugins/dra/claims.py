"""A claim's spec made ready for the search: requests resolved to classes, selectors checked.

Made once a claim's content and classes; used by the allocator. What is wrong with a claim is found
here, whatever devices there are, and is said in a text that names the claim and the request.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from bindery.api.quantity import QuantityError, nano
from bindery.kube.claims import (
    MOST_RESULTS,
    DeviceClaim,
    DeviceRequest,
    DeviceToleration,
    ExactRequest,
)
from bindery.kube.devices import DeviceClass, DeviceSelector
from bindery.scheduler.plugins.dra.cel import SelectorError, Selectors
from bindery.scheduler.plugins.dra.constraints import Constraint


class ClaimError(Exception):
    """Why a claim cannot be allocated, whatever is free: for the pod that waits for it."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One selector, and whose it is."""

    owner: str
    """`class gpu: selector #0`."""
    expression: str


@dataclass(frozen=True, slots=True, eq=False)
class Wish:
    """One request, or one of the alternatives of a prioritized list."""

    names: tuple[str, ...]
    """Of the request; of a sub-request, that of its request, and both joined by a slash."""
    device_class: DeviceClass
    rules: tuple[Rule, ...]
    wants_all: bool
    count: int
    """How many devices; without meaning when all are wanted."""
    has_admin_access: bool
    tolerations: tuple[DeviceToleration, ...]
    capacity: Mapping[str, int]
    """What is asked of capacities, in billionths."""

    @property
    def name(self) -> str:
        """What it is called in results."""
        return self.names[-1]


@dataclass(frozen=True, slots=True, eq=False)
class PreparedClaim:
    """A claim that can be searched for."""

    spec: DeviceClaim
    requests: tuple[tuple[Wish, ...], ...]
    """For each request its alternatives, best first; usually one."""


def prepare(
    spec: DeviceClaim, classes: Mapping[str, DeviceClass], selectors: Selectors
) -> PreparedClaim:
    """Return `spec` made ready.

    Raises:
        ClaimError: it asks for what does not exist, or cannot be read.
    """
    requests = tuple(_alternatives(request, classes, selectors) for request in spec.requests)
    for index, constraint in enumerate(spec.constraints):
        try:
            Constraint(constraint)
        except ValueError as error:
            raise ClaimError(f"constraint #{index}: {error}") from error
    least = sum(
        min(1 if wish.wants_all else wish.count for wish in alternatives)
        for alternatives in requests
    )
    if least > MOST_RESULTS:
        raise ClaimError(
            f"number of requested devices {least} exceeds the claim limit of {MOST_RESULTS}"
        )
    return PreparedClaim(spec, requests)


def _alternatives(
    request: DeviceRequest, classes: Mapping[str, DeviceClass], selectors: Selectors
) -> tuple[Wish, ...]:
    if request.exactly is not None:
        return (_wish((request.name,), request.exactly, classes, selectors),)
    if not request.first_available:
        raise ClaimError(f"request {request.name}: unsupported request type")
    return tuple(
        _wish((request.name, f"{request.name}/{each.name}"), each, classes, selectors)
        for each in request.first_available
    )


def _wish(
    names: tuple[str, ...],
    asked: ExactRequest,
    classes: Mapping[str, DeviceClass],
    selectors: Selectors,
) -> Wish:
    name = names[-1]
    device_class = classes.get(asked.device_class_name)
    if device_class is None:
        raise ClaimError(f"request {name}: device class {asked.device_class_name} does not exist")
    if asked.allocation_mode not in ("", "ExactCount", "All"):
        raise ClaimError(f"request {name}: unsupported count mode {asked.allocation_mode}")
    rules = _rules(f"class {asked.device_class_name}", device_class.spec.selectors)
    rules += _rules(f"request {name}", asked.selectors)
    for rule in rules:
        try:
            selectors.check(rule.expression)
        except SelectorError as error:
            raise ClaimError(f"{rule.owner}: {error}") from error
    wanted = asked.capacity.requests if asked.capacity is not None else {}
    try:
        capacity = {key: nano(amount) for key, amount in wanted.items()}
    except QuantityError as error:
        raise ClaimError(f"request {name}: {error}") from error
    return Wish(
        names=names,
        device_class=device_class,
        rules=rules,
        wants_all=asked.allocation_mode == "All",
        count=asked.count,
        has_admin_access=asked.admin_access,
        tolerations=tuple(asked.tolerations),
        capacity=capacity,
    )


def _rules(owner: str, selectors: list[DeviceSelector]) -> tuple[Rule, ...]:
    rules = []
    for index, selector in enumerate(selectors):
        if selector.cel is None:
            raise ClaimError(f"{owner}: selector #{index} is of an unsupported type")
        rules.append(Rule(f"{owner}: selector #{index}", selector.cel.expression))
    return tuple(rules)
