"""Device selectors: CEL expressions, compiled once and with bounded cost.

The environment is that of k8s.io/dynamic-resource-allocation/cel 0.36: `device.driver`,
`device.attributes`, `device.capacity`, `device.allowMultipleAllocations`. A missing domain is an
empty map, a missing attribute is an error. Invariant: an expression that is invalid or too costly
fails alone, with a message for users.
"""

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cel_expr_python import cel
from cel_expr_python.ext import ext_bindings, ext_optional, ext_strings

from bindery.kube.objects.devices import Device, DeviceAttribute
from bindery.scheduler.plugins.dra.celfunctions import (
    MAP,
    declarations,
    quantity_value,
    version_value,
)
from bindery.scheduler.plugins.dra.memo import remembered

LONGEST_EXPRESSION: Final = 10 * 1024
"""The limit of the API server, in characters (CELSelectorExpressionMaxLength)."""
_MOST_CHARACTERS: Final = 10**7
"""Kubernetes allows a selector 1,000,000 cost units; copying ten characters costs one."""
_LONGEST_VALUE: Final = 64
"""Maximum length of an attribute, in characters (DeviceAttributeMaxValueLength)."""
_MOST_SECONDS: Final = 0.25
"""Maximum processor time for one device. A selector takes about 10 us. The runtime stops loops
after 10,000 iterations, so only loops with costly iterations reach this limit."""

_BY_DOMAIN: Final = ("device.attributes", "device.capacity")
_LITERAL = re.compile(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'")
_MULTIPLIES = re.compile(r"\.(?:replace|join|format)\s*\(")
_MISSING_KEY = re.compile(r'Key not found in map : "(.*)"')


class SelectorError(Exception):
    """An expression does not compile, fails for a device, or is too costly."""


@dataclass(slots=True)
class DeviceView:
    """The variables of expressions for one device."""

    variables: dict[str, Any]
    results: dict[str, "bool | SelectorError"] = field(default_factory=dict)
    """Expression -> its result for this device."""


def view(driver: str, device: Device) -> DeviceView:
    """Return the variables for `device` of `driver`; raises SelectorError for invalid parts."""
    attributes: dict[str, dict[str, object]] = {}
    for name, attribute in device.attributes.items():
        domain, identifier = _qualified(name, driver)
        try:
            attributes.setdefault(domain, {})[identifier] = _value(attribute)
        except ValueError as error:
            raise SelectorError(f"attribute {name}: {error}") from error
    capacity: dict[str, dict[str, object]] = {}
    for name, item in device.capacity.items():
        domain, identifier = _qualified(name, driver)
        try:
            capacity.setdefault(domain, {})[identifier] = quantity_value(item.value)
        except ValueError as error:
            raise SelectorError(f"capacity {name}: {error}") from error
    return DeviceView(
        {
            "device.driver": driver,
            "device.attributes": attributes,
            "device.capacity": capacity,
            "device.allowMultipleAllocations": device.allow_multiple_allocations,
        }
    )


class Selectors:
    """Compiled expressions, and the errors of rejected ones.

    `cpu_clock`: seconds of processor time; reading it is slower than `clock`.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        text, anything = cel.Type.STRING, cel.Type.DYN
        self._clock, self._cpu_clock = clock, cpu_clock
        self._compiled: dict[str, cel.Expression | SelectorError] = {}
        self._environment = cel.NewEnv(
            variables={
                "device.driver": text,
                "device.attributes": cel.Type.Map(text, cel.Type.Map(text, anything)),
                "device.capacity": cel.Type.Map(text, cel.Type.Map(text, MAP)),
                "device.allowMultipleAllocations": cel.Type.BOOL,
            },
            extensions=[
                ext_bindings.ExtBindings(),
                ext_optional.ExtOptional(),
                ext_strings.ExtStrings(),
            ],
            functions=declarations(),
        )

    def check(self, expression: str) -> None:
        """Raise SelectorError if `expression` does not compile, or is too costly."""
        self._program(expression)

    def matches(self, expression: str, device: DeviceView) -> bool:
        """Return whether `expression` selects `device`; the result is cached in `device`.

        Raises:
            SelectorError: it does not compile, is too costly, or fails for this device.
        """
        return remembered(
            device.results,
            expression,
            SelectorError,
            lambda: self._evaluate(self._program(expression), expression, device),
        )

    def _program(self, expression: str) -> cel.Expression:
        return remembered(
            self._compiled, expression, SelectorError, lambda: self._compile(expression)
        )

    def _compile(self, expression: str) -> cel.Expression:
        if len(expression) > LONGEST_EXPRESSION:
            raise SelectorError(f"CEL compile error: longer than {LONGEST_EXPRESSION} characters")
        try:
            program = self._environment.compile(expression)
        except RuntimeError as error:
            # The runtime adds a status code and its own source positions.
            text = str(error).partition(" [")[0].removeprefix("INVALID_ARGUMENT: ")
            raise SelectorError(f"CEL compile error: {' '.join(text.split())}") from error
        # The type of an attribute is known only at run time, so dyn is allowed.
        result = program.return_type()
        if result not in (cel.Type.BOOL, cel.Type.DYN):
            raise SelectorError(
                f"CEL compile error: must evaluate to bool or the unknown type, not {result.name()}"
            )
        if _growth(expression) > _MOST_CHARACTERS:
            raise SelectorError("CEL cost error: its strings could grow beyond the cost limit")
        return program

    def _evaluate(self, program: cel.Expression, expression: str, device: DeviceView) -> bool:
        variables = device.variables
        while True:
            began = self._clock()
            value = _run(program, variables)
            # On a busy machine the wall clock runs on; processor time shows the real cost.
            if self._clock() - began > _MOST_SECONDS and self._is_slow(program, variables):
                slow = SelectorError(f"CEL cost error: stopped after {_MOST_SECONDS:g} s")
                self._compiled[expression] = slow
                raise slow
            answer = value.plain_value()
            if value.type() == cel.Type.BOOL:
                return bool(answer)
            if value.type() != cel.Type.ERROR:
                name = value.type().name()
                raise SelectorError(f"CEL runtime error: the result is {name} and not bool")
            problem = str(answer)
            # Each round adds one missing domain, until the result does not depend on one.
            wider = _with_domain(variables, problem)
            if wider is None:
                raise SelectorError(f"CEL runtime error: {problem}")
            variables = wider

    def _is_slow(self, program: cel.Expression, variables: Mapping[str, Any]) -> bool:
        began = self._cpu_clock()
        _run(program, variables)
        return self._cpu_clock() - began > _MOST_SECONDS


def _run(program: cel.Expression, variables: Mapping[str, Any]) -> cel.Value:
    try:
        return program.eval(data=variables)
    except RuntimeError as error:
        raise SelectorError(f"CEL runtime error: {error}") from error


def _with_domain(variables: Mapping[str, Any], problem: str) -> dict[str, Any] | None:
    """Return `variables` with an empty map for the missing domain in `problem`, or None.

    Kubernetes returns an empty map for a missing domain. The map is added only after a failure, so
    that `"domain" in device.attributes` stays false for a device without the domain.
    """
    missing = _MISSING_KEY.search(problem)
    if missing is None:
        return None
    domain = missing[1]
    lacking = [name for name in _BY_DOMAIN if domain not in variables[name]]
    if not lacking:
        return None
    return {**variables, **{name: {**variables[name], domain: {}} for name in lacking}}


def _growth(expression: str) -> int:
    """Return an upper bound for the length of strings made by `expression`, in characters.

    Each `+` at most doubles the longest string; each replacement multiplies it by the length of the
    inserted text.
    """
    code, pluses = _LITERAL.sub("", expression), 0
    if any(word in code for word in ("cel.bind", ".map(", ".all(", ".exists", ".filter(")):
        pluses = code.count("+")  # only a named result can be the operand of `+` twice
    multiplied = len(_MULTIPLIES.findall(code))
    share = len(expression) // multiplied if multiplied else 1
    return int((len(expression) + _LONGEST_VALUE) * 2**pluses * share**multiplied)


def _qualified(name: str, driver: str) -> tuple[str, str]:
    domain, slash, identifier = name.partition("/")
    return (domain, identifier) if slash else (driver, name)


def _value(attribute: DeviceAttribute) -> object:
    if attribute.version_value is not None:
        return version_value(attribute.version_value)
    for value in (attribute.int_value, attribute.bool_value, attribute.string_value):
        if value is not None:
            return value
    raise ValueError("unsupported attribute value")
