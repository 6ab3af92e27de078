"""Prepares a claim's spec for the search: finds the classes of requests and checks selectors.

Errors of a claim are found here, independent of the devices; the message names the request.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from bindery.api.quantity import QuantityError, nano
from bindery.kube.objects.claims import (
    MOST_RESULTS,
    DeviceClaim,
    DeviceRequest,
    DeviceToleration,
    ExactRequest,
)
from bindery.kube.objects.devices import DeviceClass, DeviceSelector
from bindery.scheduler.plugins.dra.cel import SelectorError, Selectors
from bindery.scheduler.plugins.dra.constraints import Constraint


class ClaimError(Exception):
    """A claim cannot be allocated, whatever is free. The message is for the waiting pod."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One selector, with its place for messages."""

    owner: str
    """Class or request and position, for example `class gpu: selector #0`."""
    expression: str


@dataclass(frozen=True, slots=True, eq=False)
class DeviceWish:
    """One request, or one alternative of a prioritized list."""

    names: tuple[str, ...]
    """The name of the request; for a sub-request also both names joined by a slash."""
    device_class: DeviceClass
    rules: tuple[Rule, ...]
    wants_all: bool
    count: int
    """Number of devices; ignored if `wants_all`."""
    has_admin_access: bool
    tolerations: tuple[DeviceToleration, ...]
    capacity: Mapping[str, int]
    """Capacity name -> requested amount, in billionths."""

    @property
    def name(self) -> str:
        """The name in results."""
        return self.names[-1]


@dataclass(frozen=True, slots=True, eq=False)
class PreparedClaim:
    """A claim, ready for the search."""

    spec: DeviceClaim
    requests: tuple[tuple[DeviceWish, ...], ...]
    """The alternatives of each request, best first; usually one."""


def prepare(
    spec: DeviceClaim, classes: Mapping[str, DeviceClass], selectors: Selectors
) -> PreparedClaim:
    """Return `spec`, prepared for the search; raises ClaimError if it is not valid."""
    requests = tuple(_alternatives(request, classes, selectors) for request in spec.requests)
    for index, constraint in enumerate(spec.constraints):
        try:
            Constraint(constraint)
        except ValueError as error:
            raise ClaimError(f"constraint #{index}: {error}") from error
    # A claim above the limit on results can never be allocated, so do not search for it.
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
) -> tuple[DeviceWish, ...]:
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
) -> DeviceWish:
    name = names[-1]
    device_class = classes.get(asked.device_class_name)
    if device_class is None:
        raise ClaimError(f"request {name}: device class {asked.device_class_name} does not exist")
    if asked.allocation_mode not in ("", "ExactCount", "All"):
        raise ClaimError(f"request {name}: unsupported count mode {asked.allocation_mode}")
    # A device must pass the selectors of the class and of the request.
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
    return DeviceWish(
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
