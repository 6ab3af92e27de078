"""`bindery migrate kueue`: quotas, names and priorities; each manifest fits its definition."""

import copy
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from bindery.migration.kueue import migrate
from bindery.migration.report import Migration

ROOT = Path(__file__).resolve().parents[2]
VERSIONS = ("v1beta1", "v1beta2")
QUEUE_NAMES = ("a", "b", "default", "train")


def body(kind: str, name: str, spec: Any = None, **metadata: Any) -> dict[str, Any]:
    """Return an object of Kueue."""
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": kind,
        "metadata": {"name": name, **metadata},
        "spec": {} if spec is None else spec,
    }


def gpus(nominal: object, flavor: str = "plain", **limits: object) -> dict[str, Any]:
    """Return a spec of a ClusterQueue or a Cohort with one flavor of GPUs."""
    rule = {"name": "nvidia.com/gpu", "nominalQuota": nominal, **limits}
    flavors = [{"name": flavor, "resources": [rule]}]
    return {"resourceGroups": [{"coveredResources": ["nvidia.com/gpu"], "flavors": flavors}]}


def queues(found: Migration) -> dict[str, dict[str, Any]]:
    """Return the specs of the Queues by name."""
    return {
        each["metadata"]["name"]: each["spec"] for each in found.objects if each["kind"] == "Queue"
    }


def lost(found: Migration) -> set[tuple[str, str]]:
    """Return object and field of each finding."""
    return {(each.object, each.loss.field) for each in found.findings}


def test_a_queue_without_a_cohort_gets_its_quota_and_no_more() -> None:
    found = migrate([body("ClusterQueue", "a", gpus("8"))])

    assert queues(found)["a"]["resources"]["gpu"] == {"quota": 8, "overQuotaWeight": 1, "limit": 8}


def test_a_cohort_has_the_quotas_of_its_members_and_no_more() -> None:
    found = migrate(
        [
            body("ClusterQueue", "a", {"cohortName": "all", **gpus("8")}),
            body("ClusterQueue", "b", {"cohort": "all", **gpus("4", borrowingLimit="2")}),
        ]
    )

    made = queues(found)
    assert made["all"]["resources"]["gpu"] == {"quota": 12, "overQuotaWeight": 1, "limit": 12}
    assert made["a"]["resources"]["gpu"] == {"quota": 8, "overQuotaWeight": 1}
    assert made["b"]["resources"]["gpu"] == {"quota": 4, "overQuotaWeight": 1, "limit": 6}
    assert [made[name]["parent"] for name in ("a", "b")] == ["all", "all"]


def test_the_pool_of_a_cohort_counts_in_the_cohorts_above() -> None:
    found = migrate(
        [
            body("Cohort", "lab", {"parentName": "company", **gpus("5", borrowingLimit="1")}),
            body("ClusterQueue", "a", {"cohortName": "lab", **gpus("8")}),
        ]
    )

    made = queues(found)
    assert made["lab"]["resources"]["gpu"] == {"quota": 13, "overQuotaWeight": 1, "limit": 14}
    assert made["company"]["resources"]["gpu"]["limit"] == 13
    assert [each["metadata"]["name"] for each in found.objects] == ["company", "lab", "a"]


def test_a_flavor_of_one_gpu_model_is_a_rule_for_the_model() -> None:
    labels = {"nodeLabels": {"nvidia.com/gpu.product": "A100"}}
    found = migrate(
        [body("ResourceFlavor", "fast", labels), body("ClusterQueue", "a", gpus("8", "fast"))]
    )

    assert queues(found)["a"]["models"]["A100"] == {"quota": 8, "overQuotaWeight": 1, "limit": 8}
    assert ("ResourceFlavor fast", "spec.nodeLabels") in lost(found)


@pytest.mark.parametrize(
    ("policies", "is_kept"), [(("Never", None), False), (("Never", "Any"), True)]
)
def test_a_cohort_that_takes_nothing_back_is_not_reclaimable(
    policies: tuple[str | None, ...], *, is_kept: bool
) -> None:
    found = migrate(
        [
            body(
                "ClusterQueue",
                name,
                {"cohortName": "all", "preemption": {"reclaimWithinCohort": policy}}
                if policy
                else {"cohortName": "all"},
            )
            for name, policy in zip("ab", policies, strict=True)
        ]
    )

    assert {spec.get("reclaimable", True) for spec in queues(found).values()} == {is_kept}


def test_a_local_queue_keeps_the_label_of_its_workloads() -> None:
    found = migrate(
        [
            body("ClusterQueue", "a", {"namespaceSelector": {}, **gpus("8")}),
            body("LocalQueue", "train", {"clusterQueue": "a"}, namespace="red"),
            body("LocalQueue", "train", {"clusterQueue": "a"}, namespace="blue"),
        ]
    )

    made = queues(found)
    assert "namespaces" not in made["a"]
    assert made["train"]["parent"] == "a"
    assert made["train"]["namespaces"] == {"names": ["blue", "red"]}
    assert made["train"]["resources"]["gpu"]["quota"] == 8


def test_local_queues_with_one_name_that_lead_elsewhere_get_names_of_their_own() -> None:
    found = migrate(
        [
            body("ClusterQueue", "a", gpus("8")),
            body("ClusterQueue", "b", gpus("8")),
            body("LocalQueue", "train", {"clusterQueue": "a"}, namespace="red"),
            body("LocalQueue", "train", {"clusterQueue": "b"}, namespace="blue"),
        ]
    )

    made = queues(found)
    assert (made["red-train"]["parent"], made["blue-train"]["parent"]) == ("a", "b")
    assert {
        ("LocalQueue red/train", "metadata.name"),
        ("LocalQueue blue/train", "metadata.name"),
    } < (lost(found))


def test_more_namespaces_than_a_queue_can_name_are_selected() -> None:
    many = [
        body("LocalQueue", "train", {"clusterQueue": "a"}, namespace=f"n{number}")
        for number in range(1_001)
    ]
    found = migrate([body("ClusterQueue", "a", gpus("8")), *many])

    (expression,) = queues(found)["train"]["namespaces"]["selector"]["matchExpressions"]
    assert len(expression["values"]) == 1_001
    assert flaws(found) == []


def test_a_selector_that_is_missing_or_unreadable_lets_no_namespace_in() -> None:
    found = migrate(
        [
            body("ClusterQueue", "a"),
            body("ClusterQueue", "b", {"namespaceSelector": {"matchLabels": ["x"]}}),
        ]
    )

    assert [spec["namespaces"] for spec in queues(found).values()] == [{}, {}]
    assert ("ClusterQueue b", "spec.namespaceSelector") in lost(found)


@pytest.mark.parametrize("weight", ["three", -2, "-500m", True, float("nan"), [4]])
def test_an_unreadable_weight_is_reported_and_counts_as_1(weight: object) -> None:
    found = migrate([body("ClusterQueue", "a", {"fairSharing": {"weight": weight}, **gpus(8)})])

    assert queues(found)["a"]["resources"]["gpu"]["overQuotaWeight"] == 1
    assert ("ClusterQueue a", "spec.fairSharing.weight") in lost(found)


@pytest.mark.parametrize("quota", ["many", -8, None, [1], True])
def test_an_unreadable_quota_is_reported_and_is_0(quota: object) -> None:
    found = migrate([body("ClusterQueue", "a", gpus(quota))])

    assert queues(found)["a"]["resources"]["gpu"]["quota"] == 0
    path = "spec.resourceGroups[0].plain.nvidia.com/gpu.nominalQuota"
    assert ("ClusterQueue a", path) in lost(found)


def test_priorities_keep_their_order_and_stay_preemptible() -> None:
    values = {"top": 10_000, "high": 100, "mid": 99, "low": 10, "least": -5}
    classes = [
        {**body("WorkloadPriorityClass", name), "value": value} for name, value in values.items()
    ]

    found = migrate(classes)

    made = {each["metadata"]["name"]: each["value"] for each in found.objects}
    assert made == {"top": 99, "high": 98, "mid": 97, "low": 10, "least": -5}
    assert {name for name, _ in lost(found)} == {
        f"WorkloadPriorityClass {name}" for name in ("top", "high", "mid")
    }


def test_no_namespace_is_charged_by_a_local_queue_with_the_name_of_the_default_queue() -> None:
    local = body("LocalQueue", "default", {"clusterQueue": "a"}, namespace="red")
    found = migrate([body("ClusterQueue", "a", gpus(1)), local])

    assert set(queues(found)) == {"a", "red-default"}


# -- any objects ---------------------------------------------------------------------------------

VALUES: st.SearchStrategy[Any] = st.sampled_from(
    [None, 0, 1, "2", "500m", "1Ti", "9E", -3, "-4", 2.5, "many", True, [], {}, float("nan")]
)
NAMES = st.sampled_from(QUEUE_NAMES)


def some(
    needed: Mapping[str, st.SearchStrategy[Any]] | None = None, **fields: st.SearchStrategy[Any]
) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(dict(needed or {}), optional=fields)


RULES = some(
    {
        "name": st.sampled_from(["cpu", "memory", "nvidia.com/gpu", "amd.com/gpu", "pods", ""]),
        "nominalQuota": st.sampled_from([1, "2", "1Ti"]) | VALUES,
    },
    borrowingLimit=VALUES,
    lendingLimit=VALUES,
)
FLAVORS = some(
    {"resources": st.lists(RULES, min_size=1, max_size=3) | VALUES},
    name=st.sampled_from(["plain", "fast"]),
)
GROUPS = (
    st.lists(some({"flavors": st.lists(FLAVORS, min_size=1, max_size=2)}), min_size=1, max_size=2)
    | VALUES
)
POLICIES = st.sampled_from(["Never", "Any", "LowerPriority", "LowerOrNewerEqualPriority", 3])
STOPS = st.sampled_from(["None", "Hold", "HoldAndDrain", None])
WEIGHTS = some({"weight": VALUES}) | VALUES
SELECTORS = VALUES | some(
    matchLabels=st.dictionaries(NAMES, NAMES | VALUES, max_size=2) | VALUES,
    matchExpressions=st.lists(
        some(key=NAMES | VALUES, operator=st.sampled_from(["In", "Exists", "Odd"]), values=VALUES),
        max_size=2,
    ),
)
CLUSTER_QUEUES = st.builds(
    body,
    st.just("ClusterQueue"),
    NAMES,
    some(
        {"resourceGroups": GROUPS, "fairSharing": WEIGHTS},
        cohortName=NAMES,
        cohort=NAMES,
        preemption=some(reclaimWithinCohort=POLICIES, withinClusterQueue=POLICIES),
        flavorFungibility=some(whenCanBorrow=POLICIES),
        namespaceSelector=SELECTORS,
        stopPolicy=STOPS,
    ),
)
OBJECTS = st.one_of(
    st.builds(
        body,
        st.just("Cohort"),
        NAMES,
        some(parentName=NAMES, resourceGroups=GROUPS, fairSharing=WEIGHTS),
    ),
    st.builds(
        body,
        st.just("LocalQueue"),
        NAMES,
        some(clusterQueue=NAMES, stopPolicy=STOPS, fairSharing=WEIGHTS),
        namespace=st.sampled_from(["red", "blue"]),
    ),
    st.builds(
        body,
        st.just("ResourceFlavor"),
        st.sampled_from(["plain", "fast"]),
        some(nodeLabels=st.just({"nvidia.com/gpu.product": "A100"}) | VALUES),
    ),
    st.builds(
        body,
        st.just("Topology"),
        NAMES,
        some(levels=st.lists(some(nodeLabel=NAMES | VALUES), max_size=3) | VALUES),
    ),
    st.builds(
        lambda name, value: {**body("WorkloadPriorityClass", name), "value": value},
        NAMES,
        VALUES | st.integers(),
    ),
)


@cache
def checker(kind: str) -> Draft202012Validator:
    """Return the schema of the committed definition of `kind`, without unknown fields."""
    (path,) = (
        path
        for path in (ROOT / "crds").iterdir()
        if yaml.safe_load(path.read_text())["spec"]["names"]["kind"] == kind
    )
    (version,) = yaml.safe_load(path.read_text())["spec"]["versions"]
    schema = copy.deepcopy(version["schema"]["openAPIV3Schema"]["properties"]["spec"])
    _close(schema)
    return Draft202012Validator(schema)


def _close(schema: dict[str, Any]) -> None:
    """Refuse fields that the schema does not have, as `--validate=strict` does."""
    if "properties" in schema:
        schema["additionalProperties"] = False
    inner = [*schema.get("properties", {}).values(), schema.get("items")]
    inner.append(schema.get("additionalProperties"))
    for each in inner:
        if isinstance(each, dict):
            _close(each)


def flaws(found: Migration) -> list[str]:
    """Return the parts of the objects that their definitions refuse."""
    messages: list[str] = []
    for each in found.objects:
        if each["kind"] == "PriorityClass":
            if not -(2**31) <= each["value"] < 100:
                messages.append(f"priority {each['value']}")
            continue
        errors = checker(each["kind"]).iter_errors(each["spec"])
        messages += [f"{each['kind']} {error.json_path}: {error.message}" for error in errors]
    names = [(each["kind"], each["metadata"]["name"]) for each in found.objects]
    messages += [f"{name} is there twice" for name in names if names.count(name) > 1]
    return messages


def distinct(bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one object of each kind and name, as a cluster has them."""
    return list(
        {
            (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]): each
            for each in bodies
        }.values()
    )


@given(
    st.lists(CLUSTER_QUEUES, max_size=4), st.lists(OBJECTS, max_size=6), st.sampled_from(VERSIONS)
)
def test_every_manifest_fits_its_definition_whatever_is_given(
    cluster_queues: list[dict[str, Any]], others: list[dict[str, Any]], version: str
) -> None:
    bodies = distinct(cluster_queues + others)

    found = migrate([{**each, "apiVersion": f"kueue.x-k8s.io/{version}"} for each in bodies])

    assert flaws(found) == []
    yaml.safe_dump(found.objects)


@given(
    st.sampled_from(["ClusterQueue", "Cohort", "LocalQueue", "ResourceFlavor"]),
    st.text("abcxyz", min_size=3, max_size=8),
)
def test_a_field_that_is_not_known_is_in_the_report(kind: str, field: str) -> None:
    spec: Mapping[str, Any] = {"clusterQueue": "a", field: "set"}
    others = [] if kind == "ClusterQueue" else [body("ClusterQueue", "a")]

    found = migrate([*others, body(kind, "train", spec)])

    assert (f"{kind} train", f"spec.{field}") in lost(found)
