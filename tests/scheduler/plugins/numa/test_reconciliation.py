"""Properties of the free zones of a node, computed from late reports and changes of its pods."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bindery.kube.objects import watched as kube
from bindery.nodecore.prediction import plain
from bindery.nodecore.prediction.zones import NodeZones
from bindery.scheduler.plugins.numa.amounts import Axis
from bindery.scheduler.plugins.numa.asks import Ask, Asks
from bindery.scheduler.plugins.numa.inclusion import NodeHistory, renewed
from bindery.scheduler.plugins.numa.reconciliation import (
    ComingPod,
    ObservedPods,
    ReconciledNode,
    reconcile,
)
from bindery.scheduler.plugins.numa.reports import ZoneReport, read
from tests.scheduler.numaworld import aligned_pod, bound, on_zone, report
from tests.sizes import examples

AXIS = Axis(("cpu", "memory"), 2)
LARGER = Axis(("cpu", "memory", "example.com/nic"), 3)
ASKS = Asks()
CPUS = {f"p{number}": 1 + number % 3 for number in range(6)}
POLICIES = ["none", "best-effort", "restricted", "single-numa-node"]


def after(node: NodeZones, ask: Ask) -> NodeZones:
    predicted = plain.predict(node, ask.request)
    return predicted.after if predicted.admit else plain.take(node, ask.request, 0)


@st.composite
def reports(draw: st.DrawFn) -> ZoneReport:
    free: dict[str, list[int]] = {
        "cpu": draw(st.lists(st.integers(0, 4), min_size=2, max_size=2)),
        "memory": draw(st.lists(st.integers(3, 8), min_size=2, max_size=2)),
    }
    way: dict[str, Any] = {}
    shown = draw(st.sets(st.sampled_from(sorted(CPUS))))
    match draw(st.sampled_from(["list", "fingerprint", "use"])):
        case "list":
            way = {"pods": [f"uid-{name}" for name in shown]}
        case "fingerprint":
            way = {"signed": [aligned_pod(name) for name in shown]}
    stored = report("n", free=free, policy=draw(st.sampled_from(POLICIES)), **way)
    found = read(stored, {"cpu": "8", "memory": "16Gi"})
    assert found is not None
    return found


@st.composite
def observed(draw: st.DrawFn) -> ObservedPods:
    present: dict[str, kube.Pod] = {}
    coming: dict[str, ComingPod] = {}
    for name, cpus in CPUS.items():
        item, record = aligned_pod(name, cpu=cpus), on_zone(draw(st.integers(0, 1)), cpus)
        match draw(st.sampled_from(["absent", "coming", "starts", "runs", "foreign"])):
            case "coming":
                ask = ASKS.of_pod(item)
                coming[item.metadata.uid] = ComingPod(record, ask)
            case "starts" | "runs" as state:
                phase = "Running" if state == "runs" else "Pending"
                present[item.metadata.uid] = bound(item, "n", record, phase)
            case "foreign":
                present[item.metadata.uid] = bound(item, "n")
    leaving = draw(st.sets(st.sampled_from(sorted(CPUS))))
    return ObservedPods(present, coming, frozenset(f"uid-{name}" for name in leaving))


steps = st.lists(st.tuples(st.none() | reports(), observed()), min_size=1, max_size=6)


def amounts(node: ReconciledNode) -> list[Any]:
    sides = [(each.free.tolist(), dict(each.spans)) for each in (node.now, node.later)]
    return [*sides, node.releases]


def held(history: NodeHistory) -> Mapping[str, Any]:
    return {uid: part.amounts.tolist() for uid, part in history.parts.items()}


@settings(max_examples=examples(21), deadline=None)
@given(first=reports(), steps=steps)
def test_free_zones_stay_within_totals_and_the_same_facts_give_the_same_zones(
    first: ZoneReport, steps: list[tuple[ZoneReport | None, ObservedPods]]
) -> None:
    history = NodeHistory(first)
    for new, pods in steps:
        history = history if new is None else renewed(history, new)
        before = dict(history.pods), history.included, held(history)
        node = reconcile(history, pods, AXIS, ASKS.of_pod, after)

        assert before == (dict(history.pods), history.included, held(history))
        assert amounts(reconcile(history, pods, AXIS, ASKS.of_pod, after)) == amounts(node)
        totals = AXIS.amounts(history.report.zones.totals)
        assert (node.now.free >= 0).all()
        assert (node.now.free <= node.later.free).all()
        assert (node.later.free <= totals).all()
        assert set(node.history.pods) <= set(pods.bound)
        assert not node.history.ended.keys() & pods.bound.keys()
        history = node.history


@settings(max_examples=examples(21), deadline=None)
@given(first=reports(), steps=steps)
def test_zones_and_resources_of_other_nodes_change_nothing(
    first: ZoneReport, steps: list[tuple[ZoneReport | None, ObservedPods]]
) -> None:
    history = larger = NodeHistory(first)
    for number, (new, pods) in enumerate(steps):
        if new is not None:
            history, larger = renewed(history, new), renewed(larger, new)
        # The axis grows after the first step, when guesses of the smaller axis exist.
        one = reconcile(history, pods, AXIS, ASKS.of_pod, after)
        other = reconcile(larger, pods, LARGER if number else AXIS, ASKS.of_pod, after)
        assert np.array_equal(other.now.free[:2, :2], one.now.free)
        assert np.array_equal(other.later.free[:2, :2], one.later.free)
        assert not other.later.free[2:].any()
        history, larger = one.history, other.history


@given(first=reports(), pods=observed())
@settings(max_examples=examples(21), deadline=None)
def test_a_report_that_lists_all_pods_is_taken_as_it_is(
    first: ZoneReport, pods: ObservedPods
) -> None:
    listed = replace(first, pods=frozenset(pods.bound), fingerprint=None)
    node = reconcile(
        NodeHistory(listed), ObservedPods(pods.bound, {}, frozenset()), AXIS, ASKS.of_pod, after
    )

    assert np.array_equal(node.now.free, AXIS.amounts(first.zones.free))
    assert node.history.included == frozenset(pods.bound)
    assert node.releases == 0
