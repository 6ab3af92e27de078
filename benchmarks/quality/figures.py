"""Means and tables of the experiment's results, beside the published figures. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Final

from rich.table import Table

from benchmarks.quality.traces import DEFAULT

LEARNED: Final = "bindery"
"""The default configuration: the scheduler learns the typical workload."""
KNOWN: Final = "bindery-known"
"""The typical workload is given, as FGD's experiment gives it."""
COLUMNS: Final = (100, 130)
_PUBLISHED: Final = {
    "Random": "published-random",
    "BestFit": "published-best-fit",
    "GpuPacking": "published-packing",
    "FGD": "published-fgd",
}
_FGD: Final = "published-fgd"
_BEST_FIT: Final = "published-best-fit"
_GOAL: Final = 95.46
"""Of the default trace at 130 %, from FGD with one change that its authors did not publish."""

Published = Mapping[str, Mapping[str, Mapping[str, Mapping[int, float]]]]
Means = dict[str, dict[str, dict[str, float]]]


@dataclass(frozen=True)
class Result:
    """The outcome of one run."""

    trace: str
    policy: str
    seed: int
    node_order: int | None
    """A further order of the nodes; None: the published one."""
    allocation: dict[int, float]
    """% of all GPUs, by the % that the arrivals have requested."""
    fragmentation: dict[int, float]
    """% of all GPUs that the typical pod cannot use, by the same."""
    milliseconds: float
    """Processor time of planning, by arrival."""

    @property
    def key(self) -> tuple[bool, str, str, int, int]:
        """Sort key: the default trace first."""
        return (self.trace != DEFAULT, self.trace, self.policy, self.node_order or 0, self.seed)


def means(results: Iterable[Result], published: Published) -> Means:
    """Return trace -> policy -> column -> mean over seeds, published policies among them."""
    values: defaultdict[tuple[str, str, int], list[float]] = defaultdict(list)
    seeds: defaultdict[str, set[int]] = defaultdict(set)
    for result in results:
        if result.node_order is None:
            seeds[result.trace].add(result.seed)
            for column in COLUMNS:
                values[result.trace, result.policy, column].append(result.allocation[column])
    for trace, own in seeds.items():
        for policy, columns in published.get(trace, {}).items():
            if policy in _PUBLISHED:
                for column in COLUMNS:
                    known = columns[str(column)]
                    values[trace, _PUBLISHED[policy], column] += [
                        known[seed] for seed in sorted(own) if seed in known
                    ]
    found: Means = {}
    for (trace, policy, column), each in values.items():
        if each:
            found.setdefault(trace, {}).setdefault(policy, {})[str(column)] = round(mean(each), 4)
    return found


def tables(results: Sequence[Result], published: Published) -> Iterator[Table]:
    """Yield the tables for people."""
    found = means(results, published)
    yield _allocation(found)
    fragmentation = _fragmentation(results)
    if fragmentation.row_count:
        yield fragmentation
    yield _goals(results, found)


def _allocation(found: Means) -> Table:
    policies = sorted({policy for each in found.values() for policy in each})
    table = Table(title="Allocated GPUs in %, at 100 / 130 % requested: means over seeds")
    table.add_column("trace")
    for policy in policies:
        table.add_column(policy, justify="right")
    for trace, by_policy in found.items():
        cells = []
        for policy in policies:
            values = by_policy.get(policy)
            cells.append(f"{values['100']:.2f} / {values['130']:.2f}" if values else "")
        table.add_row(trace, *cells)
    return table


def _fragmentation(results: Sequence[Result]) -> Table:
    table = Table(title="Fragmentation in % of all GPUs, and planning time: means over seeds")
    table.add_column("trace")
    table.add_column("policy")
    groups: defaultdict[tuple[str, str], list[Result]] = defaultdict(list)
    for result in results:
        if result.node_order is None and result.fragmentation:
            groups[result.trace, result.policy].append(result)
    measured = sorted({at for each in groups.values() for at in each[0].fragmentation})
    for at in measured:
        table.add_column(f"at {at} %", justify="right")
    table.add_column("ms per pod", justify="right")
    for (trace, policy), group in groups.items():
        lost = [mean(each.fragmentation.get(at, 0.0) for each in group) for at in measured]
        time_ms = mean(each.milliseconds for each in group)
        table.add_row(trace, policy, *(f"{value:.2f}" for value in lost), f"{time_ms:.2f}")
    return table


def _goals(results: Sequence[Result], found: Means) -> Table:
    table = Table(title="Goals")
    for name in ("goal", "measured", "reached"):
        table.add_column(name)

    def add(goal: str, measured: str, *, reached: bool) -> None:
        table.add_row(goal, measured, "yes" if reached else "no")

    default = found.get(DEFAULT, {})
    known, learned = default.get(KNOWN, {}).get("130"), default.get(LEARNED, {}).get("130")
    if known is not None:
        add(f"default at 130 %: {_GOAL}", f"{known:.2f}", reached=known >= _GOAL)
    if known is not None and learned is not None:
        text = f"{learned:.2f}, {learned - known:+.2f}"
        add("learned within 0.3 of known", text, reached=learned >= known - 0.3)
    for policy in (KNOWN, LEARNED):
        for rival, margin in ((_FGD, 0.01), (_BEST_FIT, 0.0)):
            gains = {
                trace: by_policy[policy]["130"] - by_policy[rival]["130"]
                for trace, by_policy in found.items()
                if policy in by_policy and rival in by_policy
            }
            if gains:
                worst = min(gains, key=gains.__getitem__)
                text = f"worst {worst} {gains[worst]:+.2f}, mean {mean(gains.values()):+.2f}"
                goal = f"{policy}: every trace at least {rival} - {margin:g}"
                add(goal, text, reached=gains[worst] >= -margin)
        orders = [r.allocation[130] for r in results if r.node_order and r.policy == policy]
        if orders:
            text = f"{min(orders):.2f} to {max(orders):.2f}"
            goal = f"{policy}: {len(orders)} orders of nodes within 0.3"
            add(goal, text, reached=max(orders) - min(orders) <= 0.3)
    return table
