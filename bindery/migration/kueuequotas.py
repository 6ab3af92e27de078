"""Quotas of Kueue's flavors as rules of a Queue, by resource and by GPU model. Pure.

In Kueue a ClusterQueue, or a Cohort, has a quota for each pair of flavor and resource. A Queue has
one for each resource, and one for each GPU model.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from bindery.api import names
from bindery.api.quantity import QuantityError, canonical, parse
from bindery.grouper.marks.foreign import UNREADABLE, Body, items, part
from bindery.migration.report import Migration

_MOST: Final = 2**63 - 1
"""The largest amount that a queue can have, in the units of `quantity`."""
_MOST_NUMBER: Final = 2**31
"""Whole amounts up to here are written as numbers."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A rule in the spec of a Queue."""

    field: str
    """`resources` or `models`."""
    key: str
    """The resource or the model."""

    @property
    def resource(self) -> str:
        """Return the resource that the amounts are in."""
        is_gpu = self.field == "models" or self.key == "gpu"
        return names.GPU_RESOURCE if is_gpu else self.key


@dataclass(frozen=True, slots=True)
class Amounts:
    """Quotas of one place, in the units of `quantity`."""

    nominal: int = 0
    borrowing: int | None = 0
    """What may be borrowed beside; None is without limit."""

    def __add__(self, other: "Amounts") -> "Amounts":
        if self.borrowing is None or other.borrowing is None:
            return Amounts(self.nominal + other.nominal, None)
        return Amounts(self.nominal + other.nominal, self.borrowing + other.borrowing)


Quotas = dict[Place, Amounts]


def total(many: Iterable[Mapping[Place, Amounts]]) -> Quotas:
    """Return the sums of `many`, place by place."""
    sums: Quotas = {}
    for each in many:
        for place, amounts in each.items():
            sums[place] = sums.get(place, Amounts()) + amounts
    return sums


def quotas_of(found: Migration, body: Body, models: Mapping[str, str]) -> Quotas:
    """Return the quotas of a ClusterQueue or a Cohort, summed over its flavors.

    `models`: flavor -> GPU model of its nodes, for flavors that name one.
    """
    sums: Quotas = {}
    for index, group in enumerate(items(part(body, "spec"), "resourceGroups")):
        path = f"spec.resourceGroups[{index}]"
        flavors = items(group, "flavors")
        for flavor in flavors:
            sums = total((sums, _of_flavor(found, body, path, flavor, models)))
        plain = [str(flavor.get("name")) for flavor in flavors if flavor.get("name") not in models]
        if len(flavors) > 1 and plain:
            reason = "their quotas are added: pods choose nodes by node selectors"
            found.lose(body, f"{path}.flavors", plain, reason)
    return sums


def _of_flavor(
    found: Migration, body: Body, path: str, flavor: Body, models: Mapping[str, str]
) -> Quotas:
    name = str(flavor.get("name"))
    sums: Quotas = {}
    for rule in items(flavor, "resources"):
        resource = str(rule.get("name", ""))
        place = f"{path}.{name}.{resource}"
        if not resource or resource == "pods":
            reason = "queues do not count pods" if resource else UNREADABLE
            found.lose(body, place, rule.get("nominalQuota"), reason)
            continue
        ours = "gpu" if resource == names.GPU_RESOURCE else resource
        amounts = _amounts(found, body, place, rule, Place("resources", ours).resource)
        where = [Place("resources", ours)]
        if ours == "gpu" and name in models:
            where.append(Place("models", models[name]))
        for each in where:
            sums[each] = sums.get(each, Amounts()) + amounts
        if rule.get("lendingLimit") is not None:
            reason = "a queue lends all that it does not use, and takes it back by reclaim"
            found.lose(body, f"{place}.lendingLimit", rule["lendingLimit"], reason)
    return sums


def _amounts(found: Migration, body: Body, path: str, rule: Body, resource: str) -> Amounts:
    read: dict[str, int | None] = {}
    for key in ("nominalQuota", "borrowingLimit"):
        value = rule.get(key)
        if value is None and key == "borrowingLimit":
            read[key] = None
            continue
        read[key] = amount_in(value, resource)
        if read[key] is None:
            found.lose(body, f"{path}.{key}", value, f"{UNREADABLE}: 0 is written")
            read[key] = 0
    return Amounts(read["nominalQuota"] or 0, read["borrowingLimit"])


def amount_in(value: object, resource: str) -> int | None:
    """Return the quantity `value` in the units of `resource`; None if it is none, or negative."""
    if not isinstance(value, int | float | str) or isinstance(value, bool):
        return None
    try:
        amount = parse(value, resource)
    except QuantityError:
        return None
    return amount if amount >= 0 else None


def written(amount: int, resource: str) -> int | str:
    """Return `amount` as a quantity; what no queue could hold is -1, unlimited."""
    if amount > _MOST:
        return -1
    text = canonical(amount, resource)
    return int(text) if text.isdigit() and int(text) < _MOST_NUMBER else text


def rule_of(amounts: Amounts, resource: str, weight: float) -> dict[str, Any]:
    """Return the rule of a Queue: quota and weight, and the limit where borrowing has one."""
    rule: dict[str, Any] = {
        "quota": written(amounts.nominal, resource),
        "overQuotaWeight": weight,
    }
    if amounts.borrowing is not None:
        rule["limit"] = written(amounts.nominal + amounts.borrowing, resource)
    return rule


def specs_of(
    quotas: Mapping[Place, Amounts], weight: float
) -> dict[str, dict[str, dict[str, Any]]]:
    """Return `resources` and `models` of a Queue's spec."""
    spec: dict[str, dict[str, dict[str, Any]]] = {"resources": {}}
    for place, amounts in sorted(quotas.items()):
        rule = rule_of(amounts, place.resource, weight)
        spec.setdefault(place.field, {})[place.key] = rule
    return spec
