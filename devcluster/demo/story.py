"""The examples of the demo, their expected outcomes, and the commands that it shows.

Called by `devcluster.demo`. Two of the examples must wait with a reason and without bound pods; the
others must run completely. All states are read with kubectl, as a user would.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgspec

from devcluster import checkout
from devcluster.build import Report
from devcluster.errors import ControlPlaneError
from devcluster.plane import ControlPlane

NAMESPACE: Final = "bindery-demo"
_TIMEOUT_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.5


@dataclass(frozen=True)
class Example:
    """One of the examples and its expected outcome."""

    name: str
    running: int
    """How many of its pods must run."""
    reason: str = ""
    """Reason of the PodGroup's condition while it waits; empty: it does not wait."""


EXAMPLES: Final = (
    Example("gang", running=8),
    Example("elastic", running=6),
    Example("never-fits", running=0, reason="Unschedulable"),
    Example("over-limit", running=0, reason="OverLimit"),
)

WORKLOADS: Final = (
    Example("train", running=4),
    Example("pipeline-load", running=1),
    Example("pipeline-train", running=2),
)
"""Jobs without a PodGroup: one alone, and two owned by a Pipeline, one after the other."""

DEVICE_EXAMPLES: Final = (
    Example("notebooks", running=3),
    Example("inference", running=4),
    Example("claimed", running=4),
    Example("with-scratch", running=4),
)
"""The examples of `examples/devices`, with simulated devices and volumes."""


@dataclass(frozen=True)
class Scene:
    """The cluster and the settings of the demo."""

    plane: ControlPlane
    report: Report
    check: Callable[[], None]
    """Raises a ControlPlaneError with the name of a process that has ended unexpectedly."""

    def wait(self, is_done: Callable[[], bool], describe: Callable[[], str]) -> None:
        """Wait until `is_done`, while all processes run; `describe` returns the missing state.

        Raises:
            ControlPlaneError: `is_done` is still False at the timeout, or a process has ended.
        """
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while not is_done():
            self.check()
            if time.monotonic() > deadline:
                raise ControlPlaneError(f"{describe()}, after {_TIMEOUT_SECONDS:.0f} s")
            time.sleep(_POLL_SECONDS)


@dataclass(frozen=True)
class Step:
    """A command that the demo shows, with its output."""

    shown: str
    run: Callable[[], str]


class _Condition(msgspec.Struct, rename="camel"):
    type: str
    status: str
    reason: str = ""
    message: str = ""


class _Metadata(msgspec.Struct, rename="camel"):
    name: str
    labels: dict[str, str] = {}


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Status(msgspec.Struct, rename="camel"):
    phase: str = ""
    conditions: list[_Condition] = []


class _Object(msgspec.Struct, rename="camel"):
    """The fields of a Node, a Pod or a PodGroup that the demo reads."""

    kind: str
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)

    def condition(self, type_: str) -> _Condition | None:
        return next((item for item in self.status.conditions if item.type == type_), None)


class _Objects(msgspec.Struct):
    items: list[_Object]


def wait_for_nodes(scene: Scene, count: int) -> None:
    """Wait until `count` nodes are Ready.

    Raises:
        ControlPlaneError: the nodes are not Ready in time, or a process has ended.
    """
    scene.report(f"waiting for {count} nodes to be Ready")

    def ready() -> int:
        nodes = _get(scene.plane, "nodes")
        conditions = [node.condition("Ready") for node in nodes]
        return sum(1 for condition in conditions if condition and condition.status == "True")

    scene.wait(lambda: ready() >= count, lambda: f"{ready()} of {count} nodes are Ready")


def submit(scene: Scene, examples: Sequence[Example]) -> None:
    """Create `examples` in a namespace of the demo, which is deleted first."""
    plane = scene.plane
    names = ", ".join(example.name for example in examples)
    scene.report(f"submitting examples/: {names}")
    plane.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", timeout_s=120)
    plane.kubectl("create", "namespace", NAMESPACE)
    directory = checkout.ROOT / "examples"
    # A gang submitted before its queue would wait for the queue; this order gives less output.
    plane.kubectl("apply", f"--filename={directory / 'queues.yaml'}")
    plane.kubectl("apply", f"--filename={directory}", f"--namespace={NAMESPACE}")
    job = directory / "workloads" / "job.yaml"
    plane.kubectl("apply", f"--filename={job}", f"--namespace={NAMESPACE}")
    _play_pipeline(scene)
    if set(DEVICE_EXAMPLES) <= set(examples):
        plane.kubectl("apply", f"--filename={directory / 'devices'}", f"--namespace={NAMESPACE}")


def _play_pipeline(scene: Scene) -> None:
    """Create the Pipeline, and act as its controller: create a stage when the one before it is
    ready.
    """
    plane = scene.plane
    directory = checkout.ROOT / "examples" / "stages"
    definition = f"--filename={directory / 'definition.yaml'}"
    plane.kubectl("apply", definition)
    established = '--output=jsonpath={.status.conditions[?(@.type=="Established")].status}'
    scene.wait(
        lambda: plane.kubectl("get", definition, established) == "True",
        lambda: "the kind Pipeline is not served",
    )
    file = f"--filename={directory / 'pipeline.yaml'}"
    text = plane.kubectl("create", file, f"--namespace={NAMESPACE}", "--output=json")
    pipeline = msgspec.json.decode(text)
    for stage in pipeline["spec"]["stages"]:
        job = _stage_job(pipeline, stage)
        scene.report(f"the Pipeline's controller creates the Job {job['metadata']['name']}")
        body = msgspec.json.encode(job).decode()
        plane.kubectl("create", "--filename=-", f"--namespace={NAMESPACE}", stdin=body)
        example = Example(job["metadata"]["name"], running=stage["size"])
        scene.wait(
            lambda: _is_settled(example, _get(plane, "pods")),  # noqa: B023  # asked at once
            lambda: f"the stage {example.name} is not ready",  # noqa: B023
        )


def _stage_job(pipeline: dict[str, Any], stage: dict[str, Any]) -> dict[str, Any]:
    """Return the Job of a stage."""
    owner = {
        "apiVersion": pipeline["apiVersion"],
        "kind": pipeline["kind"],
        "name": pipeline["metadata"]["name"],
        "uid": pipeline["metadata"]["uid"],
        "controller": True,
    }
    size = stage["size"]
    spec = {"completions": size, "parallelism": size, "completionMode": "Indexed"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"{owner['name']}-{stage['name']}", "ownerReferences": [owner]},
        "spec": {**spec, "template": stage["template"]},
    }


def wait_for_outcomes(scene: Scene, examples: Sequence[Example]) -> None:
    """Wait until every example has its expected state.

    Raises:
        ControlPlaneError: an example is not in its state in time (the text has its state), or a
            process has ended.
    """
    seen: list[str] = []

    def settled() -> bool:
        objects = _get(scene.plane, "pods,podgroups.scheduling.bindery.dev")
        lines = [_state(example, objects) for example in examples]
        text = ", ".join(lines)
        if seen[-1:] != [text]:
            seen.append(text)
            scene.report(text)
        return all(_is_settled(example, objects) for example in examples)

    scene.wait(settled, lambda: f"not all examples reached their expected state: {seen[-1]}")


def steps(plane: ControlPlane) -> Iterator[Step]:
    """Yield the commands to show at the end."""
    yield Step(
        "kubectl get bindrequests -A",
        lambda: plane.kubectl("get", "bindrequests", "--all-namespaces"),
    )
    yield Step(
        f"kubectl get podgroups -n {NAMESPACE}",
        lambda: plane.kubectl("get", "podgroups", f"--namespace={NAMESPACE}"),
    )
    yield Step(
        f"kubectl get pods -o wide -n {NAMESPACE}",
        lambda: plane.kubectl("get", "pods", "--output=wide", f"--namespace={NAMESPACE}"),
    )
    yield Step("bindery queues", partial(_bindery, plane, "queues"))
    for example in EXAMPLES:
        if example.reason:
            words = ("explain", example.name, "-n", NAMESPACE)
            yield Step(f"bindery {' '.join(words)}", partial(_bindery, plane, *words))


def _bindery(plane: ControlPlane, *words: str) -> str:
    command = [sys.executable, "-m", "bindery.cli.main", f"--kubeconfig={plane.admin_kubeconfig}"]
    return plane.run([*command, *words])


def _is_settled(example: Example, objects: list[_Object]) -> bool:
    pods = _pods(example, objects)
    if sum(pod.status.phase == "Running" for pod in pods) != example.running:
        return False
    if not example.reason:
        return True
    bound = any(pod.spec.node_name for pod in pods)
    condition = _condition(example, objects)
    if condition is None or bound or not pods:
        return False
    has_reason = condition.reason == example.reason and bool(condition.message)
    return condition.status == "False" and has_reason


def _state(example: Example, objects: list[_Object]) -> str:
    pods = _pods(example, objects)
    running = sum(pod.status.phase == "Running" for pod in pods)
    condition = _condition(example, objects)
    waits = f" ({condition.reason})" if condition and condition.status == "False" else ""
    return f"{example.name} {running}/{len(pods)}{waits}"


def _pods(example: Example, objects: list[_Object]) -> list[_Object]:
    return [
        item
        for item in objects
        if item.kind == "Pod" and item.metadata.labels.get("job-name") == example.name
    ]


def _condition(example: Example, objects: list[_Object]) -> _Condition | None:
    for item in objects:
        if item.kind == "PodGroup" and item.metadata.name == example.name:
            return item.condition("Scheduled")
    return None


def _get(plane: ControlPlane, kinds: str) -> list[_Object]:
    text = plane.kubectl("get", kinds, f"--namespace={NAMESPACE}", "--output=json")
    return msgspec.json.decode(text, type=_Objects).items
