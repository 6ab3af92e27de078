"""Selectors: bounds on the cost of an expression, and the functions that Kubernetes adds."""

import traceback
from itertools import count

import pytest

from bindery.kube.objects.devices import Device, DeviceAttribute, DeviceCapacity
from bindery.scheduler.plugins.dra.cel import LONGEST_EXPRESSION, SelectorError, Selectors, view

DEVICE = Device(
    name="gpu-0",
    attributes={"model": DeviceAttribute(string_value="A100")},
    capacity={"memory": DeviceCapacity(value="80Gi")},
)


def says(expression: str) -> bool:
    return Selectors().matches(expression, view("gpu.example.com", DEVICE))


def test_an_expression_that_took_too_long_is_not_evaluated_again() -> None:
    seconds, processor = count(), count()
    selectors = Selectors(lambda: float(next(seconds)), lambda: float(next(processor)))

    for _ in range(2):  # the second device is another one: what failed is the expression
        with pytest.raises(SelectorError, match=r"CEL cost error: stopped after 0\.25 s"):
            selectors.matches("true", view("gpu.example.com", DEVICE))

    assert next(processor) == 2


def test_only_cpu_time_counts_towards_the_limit_of_an_expression() -> None:
    seconds = count()
    selectors = Selectors(lambda: float(next(seconds)), lambda: 0.0)

    assert selectors.matches("true", view("gpu.example.com", DEVICE))


def test_an_expression_longer_than_the_api_server_allows_is_not_compiled() -> None:
    with pytest.raises(SelectorError, match="longer than 10240 characters"):
        says("true" + " " * LONGEST_EXPRESSION)


def test_results_are_cached_with_the_device() -> None:
    selectors, device = Selectors(), view("gpu.example.com", DEVICE)

    assert selectors.matches("device.driver != ''", device)
    assert device.results == {"device.driver != ''": True}


@pytest.mark.parametrize("expression", ["this is no CEL", "device.attributes['a'].b == 1"])
def test_a_cached_error_has_the_same_traceback_each_time(expression: str) -> None:
    selectors, device = Selectors(), view("gpu.example.com", DEVICE)
    lengths = set()

    for _ in range(4):
        with pytest.raises(SelectorError) as raised:
            selectors.matches(expression, device)
        lengths.add(len(traceback.extract_tb(raised.value.__traceback__)))

    assert len(lengths) == 1


@pytest.mark.parametrize(
    "expression",
    [
        'quantity("1.5G").compareTo(quantity("1500M")) == 0',
        'quantity("50M").isLessThan(quantity("50Mi"))',
        'quantity("50k").add(20).sub(quantity("100k")).sub(-50000) == quantity("20")',
        'quantity("50k").asInteger() == 50000',
        'quantity("100m").isInteger() == false',
        'quantity("100m").asApproximateFloat() == 0.1',
        'quantity("-1").sign() == -1',
        'isQuantity("1.3Gi") && !isQuantity("1,3G") && !isQuantity("200K")',
        'semver("1.0.0-alpha.2").isLessThan(semver("1.0.0-alpha.10"))',
        'semver("1.0.0-alpha.1").isLessThan(semver("1.0.0-alpha.beta"))',
        'semver("1.0.0-alpha").isLessThan(semver("1.0.0-alpha.1"))',
        'semver("1.0.0-rc.1").isLessThan(semver("1.0.0"))',
        'semver("1.2.3+build.5") == semver("1.2.3")',
        'semver("v1.0", true) == semver("1.0.0")',
        'semver("01.01.01", true) == semver("1.1.1")',
        'isSemver("1.0.0") && !isSemver("v1.0") && isSemver("v1.0", true)',
        'device.attributes["gpu.example.com"].?missing.orValue("none") == "none"',
        'device.attributes["gpu.example.com"].model.matches("^A[0-9]+$")',
        'device.attributes["gpu.example.com"].model in ["A100", "H100"]',
    ],
)
def test_documented_expressions_of_kubernetes_are_true(expression: str) -> None:
    assert says(expression)


@pytest.mark.parametrize(
    "expression",
    [
        'quantity("200K").isInteger()',
        'semver("1.0").major() == 1',
        'quantity("9999999999999999999999G").asInteger() > 0',
        'semver("1.0.0").compareTo(quantity("1")) == 0',
    ],
)
def test_documented_errors_of_kubernetes_are_errors(expression: str) -> None:
    with pytest.raises(SelectorError, match="CEL runtime error"):
        says(expression)


@pytest.mark.parametrize(
    "device",
    [
        Device(name="x", attributes={"a": DeviceAttribute()}),
        Device(name="x", attributes={"a": DeviceAttribute(version_value="1.0")}),
        Device(name="x", capacity={"a": DeviceCapacity(value="much")}),
    ],
)
def test_an_unreadable_device_is_an_error_with_its_field(device: Device) -> None:
    with pytest.raises(SelectorError, match=r"attribute a|capacity a"):
        view("gpu.example.com", device)
