"""bindery.nodecore decides as the kubelet does, and each loads the files of the other.

Random machines, policies, options and pods go through CPU manager, memory manager and topology
manager of Kubernetes (the Go program `controlplane/kubelet`) and through ours.

Differences by intent, which the questions therefore leave out:
- a pod whose containers ask for more than the pod itself: the API server refuses it; the kubelet
  would lose the pod's CPUs;
- the kubelet lists a container's memory blocks in random order, ours by resource;
- a pod asks for huge pages that no NUMA node has: the kubelet panics, ours refuses the pod;
- blocks of memory lie on groups of NUMA nodes that overlap: at a restart the kubelet charges blocks
  in random order and refuses some of the orders, ours starts if any order fits.
"""

import base64
import json
import re
from itertools import combinations, zip_longest
from typing import Any

import pytest

from tests.differential.nodequestions import RandomNode, random_merge
from tests.differential.pythonnode import PythonNode, answer
from tests.goprograms import ask
from tests.sizes import IS_LONG

pytestmark = pytest.mark.e2e  # needs the Go modules of the control plane

NODES = 2500 if IS_LONG else 100
MERGES = 5000 if IS_LONG else 500
BATCH = 50

Json = dict[str, Any]

OTHER_STATE = "the expected machine state is different from the real one"

seeds_of_nodes = pytest.mark.parametrize("first", range(0, NODES, BATCH))


@pytest.mark.parametrize("first", range(0, MERGES, 500))
def test_hints_are_merged_as_the_topology_manager_does(first: int) -> None:
    seeds = range(first, first + 500)
    questions = [random_merge(seed) for seed in seeds]

    theirs = ask("kubelet", questions)

    differences = {
        seed: (ours, other)
        for seed, question, other in zip(seeds, questions, theirs, strict=True)
        if (ours := answer(question)) != other
    }
    assert differences == {}, "seed: (ours, theirs)"


@seeds_of_nodes
def test_pods_get_the_resources_that_the_kubelets_managers_allocate(first: int) -> None:
    seeds = range(first, first + BATCH)
    questions = [RandomNode(seed).question() for seed in seeds]

    theirs = ask("kubelet", questions)

    differences = {
        seed: difference
        for seed, question, other in zip(seeds, questions, theirs, strict=True)
        if (difference := first_difference(comparable(answer(question)), comparable(other)))
    }
    assert differences == {}, "seed: (step, ours, theirs)"


@seeds_of_nodes
def test_nodecore_and_the_kubelet_continue_from_the_files_of_the_other(first: int) -> None:
    seeds = range(first, first + BATCH)
    before = [RandomNode(seed).question() for seed in seeds]
    theirs = ask("kubelet", before)
    ours = [answer(question) for question in before]

    after_ours = [
        continued(question, found, seed)
        for question, found, seed in zip(before, ours, seeds, strict=True)
    ]
    after_theirs = [
        continued(question, found, seed)
        for question, found, seed in zip(before, theirs, seeds, strict=True)
    ]
    they_continue = ask("kubelet", [question for question in after_ours if question])
    we_continue = [answer(question) for question in after_theirs if question]

    assert len(we_continue) > BATCH // 2
    differences = [
        (comparable(ours), comparable(other))
        for question, ours, other in zip(
            filter(None, after_ours), we_continue, they_continue, strict=True
        )
        if comparable(ours) != comparable(other) and not is_left_to_chance(question, other["error"])
    ]
    assert differences == []


def is_left_to_chance(question: Json, error: str) -> bool:
    """Return whether the kubelet refuses a file in some of its random orders only."""
    file = json.loads(base64.b64decode(question["node"]["files"]["memory_manager_state"]))
    return error.endswith(OTHER_STATE) and has_overlaps(file.get("entries", {}))


def has_overlaps(entries: Json) -> bool:
    """Return whether blocks lie on groups of NUMA nodes that share a node and are not the same."""
    blocks = [one for inner in entries.values() for of in inner.values() for one in of]
    groups = {tuple(one["numaAffinity"]) for one in blocks}
    return any(set(one) & set(other) for one, other in combinations(groups, 2))


def continued(question: Json, answered: Json, seed: int) -> Json | None:
    """Return the question that goes on from the files of an answer, None if it had no start."""
    if answered["error"] or answered["steps"][-1]["error"]:
        return None
    node = question["node"]
    last = answered["steps"][-1]
    admitted = {
        step["admit"]["metadata"]["uid"]: step["admit"] for step in node["steps"] if "admit" in step
    }
    held = {uid for uid in admitted if uid in last["cpus"] or uid in (last["blocks"] or {})}
    more = [
        step for step in RandomNode(seed + 10**6).question()["node"]["steps"] if "admit" in step
    ]
    files = answered["files"]
    return {
        "gates": question["gates"],
        "node": {
            **node,
            "files": files,
            "pods": [pod for uid, pod in admitted.items() if uid in held],
            "steps": [renamed(step, has_huge_pages(question)) for step in more[:3]],
        },
    }


def renamed(step: Json, huge_pages: bool) -> Json:
    """Return the admission of a pod under a name that no earlier pod has."""
    text = json.dumps(step)
    if not huge_pages:  # the kubelet dereferences a nil pointer if a NUMA node has none
        text = re.sub(r', "hugepages-2Mi": "\d+Mi"', "", text)
    return dict(json.loads(text.replace('"pod', '"later')))


def has_huge_pages(question: Json) -> bool:
    return any(node["hugePages"] for node in question["node"]["machine"]["nodes"])


def comparable(answered: Json) -> Json:
    """Return an answer without the order of blocks, which is random in the kubelet."""
    steps = [sorted_blocks(step) for step in answered["steps"] or ()]
    return {"error": answered["error"], "steps": steps}


def sorted_blocks(step: Json) -> Json:
    blocks = {
        uid: {name: sorted(of, key=lambda one: str(one["type"])) for name, of in inner.items()}
        for uid, inner in (step["blocks"] or {}).items()
    }
    return {**step, "blocks": blocks, "cpus": step["cpus"] or {}, "machine": step["machine"] or {}}


def first_difference(ours: Json, theirs: Json) -> Any:
    if ours["error"] != theirs["error"]:
        return ours, theirs
    before: Json = {}
    for number, (mine, other) in enumerate(zip_longest(ours["steps"], theirs["steps"])):
        if mine != other:
            chance = (other or {}).get("error", "").endswith(OTHER_STATE) and has_overlaps(before)
            return None if chance else (number, mine, other)
        before = mine["blocks"]
    return None


def test_the_files_of_nodecore_and_the_kubelet_have_the_same_bytes() -> None:
    """Only of machines without huge pages: with several resources the order of blocks is random."""
    questions = [RandomNode(seed).question() for seed in range(BATCH)]
    plain = [question for question in questions if not has_huge_pages(question)]

    for question, theirs in zip(plain, ask("kubelet", plain), strict=True):
        ours = answer(question)
        if ours["error"] == "" and not ours["steps"][-1]["error"]:
            assert decoded(ours["files"]) == decoded(theirs["files"])


def decoded(files: dict[str, str]) -> dict[str, bytes]:
    return {name: base64.b64decode(blob) for name, blob in files.items()}


def test_the_random_nodes_exercise_admissions_and_refusals() -> None:
    steps = [
        step
        for seed in range(60)
        for step in PythonNode(RandomNode(seed).question()).answer()["steps"] or ()
    ]
    reasons = {step["reason"] for step in steps}

    assert {"TopologyAffinityError", "UnexpectedAdmissionError", "SMTAlignmentError"} <= reasons
    assert sum(step["admit"] for step in steps) > 100
