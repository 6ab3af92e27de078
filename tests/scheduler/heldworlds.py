"""Small clusters with racks, where gangs hold exclusive domains and room for later stages."""

from typing import Any

from hypothesis import strategies as st

from bindery.scenario.format import Scenario

GPUS = 4
"""Of every node."""


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    """Draw up to six nodes in up to three racks, queues, and jobs that run or wait."""
    nodes = {
        f"n{rack}{number}": f"r{rack}"
        for rack in range(draw(st.integers(1, 3)))
        for number in range(draw(st.integers(1, 2)))
    }
    queues = [
        {"name": f"q{number}", "gpu": {"quota": draw(st.integers(0, 12)), "weight": 1}}
        for number in range(draw(st.integers(1, 3)))
    ]
    names = [str(queue["name"]) for queue in queues]
    free = {rack: dict.fromkeys(_of(nodes, rack), GPUS) for rack in set(nodes.values())}
    jobs = [_job(draw, f"j{number}", names, free) for number in range(draw(st.integers(1, 7)))]
    return Scenario.model_validate(
        {
            "nodes": [
                {"name": name, "gpus": GPUS, "cpu": "64", "labels": {"rack": rack}}
                for name, rack in nodes.items()
            ],
            "topologies": [{"name": "dc", "levels": ["rack"]}],
            "queues": queues,
            "jobs": jobs,
        }
    )


def _of(nodes: dict[str, str], rack: str) -> list[str]:
    return [name for name, each in nodes.items() if each == rack]


def _job(
    draw: st.DrawFn, name: str, queues: list[str], free: dict[str, dict[str, int]]
) -> dict[str, Any]:
    kind = draw(st.sampled_from(["plain", "rack", "exclusive", "exclusive", "staged"]))
    gpus, count = draw(st.integers(0, 2)), draw(st.integers(1, 3))
    pods: list[dict[str, Any]] = [{"gpus": gpus, "cpu": "1"} for _ in range(count)]
    if draw(st.integers(0, 4)) == 0:  # a rule that sums of resources do not contain
        pods[0]["hostPorts"] = [8080]
    # An exclusive gang that runs has its rack for itself, and nobody comes later.
    racks = [
        rack for rack, nodes in sorted(free.items()) if kind != "exclusive" or _is_empty(nodes)
    ]
    if racks and kind != "staged" and draw(st.booleans()):
        _place(pods, free[draw(st.sampled_from(racks))], gpus)
        if kind == "exclusive":
            free.update({rack: {} for rack, nodes in free.items() if not _is_untouched(nodes)})
    job: dict[str, Any] = {
        "name": name,
        "queue": draw(st.sampled_from(queues)),
        "priority": draw(st.sampled_from([50, 60, 75, 125])),
        "preemptible": draw(st.sampled_from([True, True, True, False])),
        "minMember": draw(st.sampled_from([1, count])),
        "expectedRuntime": draw(st.sampled_from(["1m", "1h"])),
        "pendingFor": draw(st.sampled_from(["0s", "10m"])),
        "pods": pods,
    }
    if kind in ("rack", "exclusive"):
        job["topology"] = {"name": "dc", "required": "rack", "exclusive": kind == "exclusive"}
    if kind == "staged":
        template = {"gpus": draw(st.integers(1, 4))}
        after = [{"subGroup": "first", "condition": "Ready"}]
        later = {"name": "later", "minMember": 1, "after": after, "template": template}
        job["subGroups"] = [{"name": "first", "minMember": count}, later]
        job["minMember"] = count
        for pod in pods:
            pod["subGroup"] = "first"
    return job


def _is_empty(nodes: dict[str, int]) -> bool:
    return bool(nodes) and _is_untouched(nodes)


def _is_untouched(nodes: dict[str, int]) -> bool:
    return all(left == GPUS for left in nodes.values())


def _place(pods: list[dict[str, Any]], nodes: dict[str, int], gpus: int) -> None:
    """Let the first pods run on `nodes` (name -> free GPUs), as many as fit."""
    for pod in pods:
        node = next((name for name, left in nodes.items() if left >= max(gpus, 1)), None)
        if node is None:
            return
        nodes[node] -= max(gpus, 1)  # a pod without GPUs also marks its rack
        pod |= {"state": "Running", "node": node}
