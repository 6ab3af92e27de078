"""PodGroups are a function of the owners and the set of pods, in any order."""

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bindery.api.states import MOST_GANG_PODS
from bindery.grouper.table import KubeObject, PodFacts, load, plan
from tests.grouper import goldens

TABLE = load()
GOLDENS = {name: goldens.load_golden(name) for name in goldens.names()}
KEYS = ("min-member", "queue", "topology-required", "preemptible")
VALUES = ("1", "3", "true", "research", "")


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(GOLDENS)), st.integers(min_value=0))
def test_any_order_of_the_objects_gives_the_same_groups(name: str, seed: int) -> None:
    golden, shuffle = GOLDENS[name], random.Random(seed).shuffle
    owners, pods = list(golden.owners.items()), list(golden.pods)
    shuffle(owners)
    shuffle(pods)

    shuffled = {uid: reordered(item, shuffle) for uid, item in owners}

    assert plan(shuffled, pods, TABLE) == plan(golden.owners, golden.pods, TABLE)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(GOLDENS)), st.data())
def test_removed_annotations_do_not_change_the_final_plan(name: str, data: st.DataObject) -> None:
    """Events arrive in any order, and values are set and removed: only the last state counts."""
    golden = GOLDENS[name]
    known: dict[str, PodFacts] = {}
    for pod in data.draw(st.permutations(golden.pods)):
        key, value = data.draw(st.sampled_from(KEYS)), data.draw(st.sampled_from(VALUES))
        annotations = {**pod.annotations, f"scheduling.bindery.dev/{key}": value}
        known[pod.uid] = replace(pod, annotations=annotations)
        plan(golden.owners, known.values(), TABLE)  # whatever it says: nothing may fail
        known[pod.uid] = pod

    assert plan(golden.owners, known.values(), TABLE) == plan(golden.owners, golden.pods, TABLE)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(GOLDENS)), st.data())
def test_an_owner_of_any_shape_does_not_affect_other_workloads(
    name: str, data: st.DataObject
) -> None:
    golden = GOLDENS[name]
    broken = {uid: damaged(item, data) for uid, item in golden.owners.items()}
    job = goldens.load_golden("job")
    groups = plan(job.owners, job.pods, TABLE).groups

    found = plan({**broken, **job.owners}, [*golden.pods, *job.pods], TABLE)

    assert set(pods_of(groups)) <= set(pods_of(found.groups))
    for group in found.groups:
        assert sum(uid in each.pods for uid in group.pods for each in found.groups) == len(
            group.pods
        )


@pytest.mark.parametrize(
    ("name", "path", "junk", "reason"),
    [
        ("lws-segments", "leaderWorkerTemplate.subGroupPolicy.subGroupSize", -1, "InvalidValue"),
        ("lws-segments", "leaderWorkerTemplate.subGroupPolicy.subGroupSize", 0, "InvalidValue"),
        ("lws-segments", "leaderWorkerTemplate.subGroupPolicy.subGroupSize", "x", "PathNotFound"),
        ("jobset-depends-on", "replicatedJobs.1.dependsOn", -1, "PathNotFound"),
        ("jobset-depends-on", "replicatedJobs.1.dependsOn", {"a": "b"}, "PathNotFound"),
    ],
)
def test_a_field_of_the_wrong_shape_is_reported_at_its_owner(
    name: str, path: str, junk: object, reason: str
) -> None:
    golden = goldens.load_golden(name)
    uid, owner = next(iter(golden.owners.items()))
    *parents, last = path.split(".")
    inner: Any = owner["spec"]
    for key in parents:
        inner = inner[int(key) if key.isdigit() else key]
    inner[last] = junk

    found = plan(golden.owners, golden.pods, TABLE)

    assert pods_of(found.groups), "its pods still are in groups"
    assert (uid, reason) in {(each.object.uid, each.reason) for each in found.problems}


@pytest.mark.parametrize(
    ("name", "path", "reason"),
    [
        ("job", "parallelism completions", "MinimumTooHigh"),
        ("jobset-in-order", "replicatedJobs.1.template.spec.parallelism", "MinimumTooHigh"),
        ("jobset-in-order", "replicatedJobs.1.replicas", "PathNotFound"),
        ("lws", "leaderWorkerTemplate.size", "MinimumTooHigh"),
        ("lws-segments-leader-ready", "leaderWorkerTemplate.size", "InvalidValue"),
    ],
)
def test_a_mistyped_number_of_pods_is_reported_and_gives_a_valid_group(
    name: str, path: str, reason: str
) -> None:
    golden = goldens.load_golden(name)
    uid, owner = next(iter(golden.owners.items()))
    for each in path.split():
        *parents, last = each.split(".")
        inner: Any = owner["spec"]
        for key in parents:
            inner = inner[int(key) if key.isdigit() else key]
        inner[last] = 2_000_000_000

    found = plan(golden.owners, golden.pods, TABLE)

    assert found.groups
    for group in found.groups:
        demanded = [each.min_member or 0 for each in group.spec.sub_groups]
        assert max((group.spec.min_member, *demanded)) <= MOST_GANG_PODS
    assert (uid, reason) in {(each.object.uid, each.reason) for each in found.problems}


def pods_of(groups: Any) -> list[str]:
    return [uid for group in groups for uid in group.pods]


def reordered(item: KubeObject, shuffle: Any) -> dict[str, Any]:
    """Return `item` with the keys of all mappings in another order."""
    found = list(item.items())
    shuffle(found)
    return {k: reordered(v, shuffle) if isinstance(v, dict) else v for k, v in found}


JUNK: tuple[Any, ...] = (None, -1, 0, 2**40, "x", "3", [], {}, [None], {"a": None}, True, 1.5)


def damaged(item: KubeObject, data: st.DataObject) -> dict[str, Any]:
    """Return `item` with any value somewhere in its spec, at any depth."""
    spec = item.get("spec")
    if not isinstance(spec, dict) or not spec:
        return dict(item)
    return {**item, "spec": with_junk(spec, data)}


def with_junk(value: Any, data: st.DataObject) -> Any:
    """Return a copy of the mapping or list `value` with one item of `JUNK` below it."""
    if isinstance(value, list):
        place = data.draw(st.integers(0, len(value)))
        old = value[place] if place < len(value) else None
        return [*value[:place], replaced(old, data), *value[place + 1 :]]
    key = data.draw(st.sampled_from(sorted(value)))
    return {**value, key: replaced(value[key], data)}


def replaced(old: Any, data: st.DataObject) -> Any:
    """Return junk instead of `old`, or `old` with junk below it."""
    if isinstance(old, dict | list) and old and data.draw(st.booleans()):
        return with_junk(old, data)
    return data.draw(st.sampled_from(JUNK))
