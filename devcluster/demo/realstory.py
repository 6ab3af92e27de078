"""The chapters of the demo on real nodes: jobs with real containers, and their output.

Called by `devcluster.demo.real`. Each chapter submits files of `examples/real-nodes`, and compares
kubectl's output with the expected state.
"""

import re
import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from devcluster import checkout
from devcluster.demo.story import Scene
from devcluster.errors import ControlPlaneError
from devcluster.realnode.stack import GPUS, RealStack

NAMESPACE: Final = "bindery-demo"
_RESERVATIONS: Final = "kai-resource-reservation"
_FOLDER: Final = "examples/real-nodes"


class _Metadata(msgspec.Struct):
    name: str
    annotations: dict[str, str] = {}


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Status(msgspec.Struct):
    phase: str = ""


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec
    status: _Status


class _Pods(msgspec.Struct):
    items: list[_Pod]


@dataclass(frozen=True)
class Chapter:
    """A part of the story."""

    title: str
    play: Callable[["Stage"], None]


class Stage:
    """The cluster and the output of the demo."""

    def __init__(self, stack: RealStack, scene: Scene, show: Callable[[str, str], None]) -> None:
        """Prepare; `show` takes a command and its output, for people."""
        self.stack, self.scene = stack, scene
        self._show = show

    def submit(self, *files: str) -> None:
        """Create the objects in the files."""
        folder = checkout.ROOT / _FOLDER
        for name in files:
            self.scene.report(f"submitting {_FOLDER}/{name}")
            self._kubectl("apply", f"--filename={folder / name}")

    def show(self, *words: str) -> str:
        """Run a kubectl command and show it with its output; return the output."""
        command = _in_namespace(words)
        output = self.scene.plane.kubectl(*command)
        self._show(shlex.join(("kubectl", *command)), output)
        return output

    def logs(self, job: str) -> list[str]:
        """Show the output of a job's pods; return the lines."""
        text = self.show("logs", "-l", f"job-name={job}", "--tail=-1", "--prefix")
        return [line.partition("] ")[2] for line in text.splitlines()]

    def show_pods(self, job: str) -> list[_Pod]:
        """Show the pods of a job on their nodes, and return them."""
        self.show("get", "pods", "-l", f"job-name={job}", "-o", "wide")
        return self.pods("-l", f"job-name={job}")

    def pods(self, *words: str) -> list[_Pod]:
        """Return the pods listed by kubectl with these arguments."""
        text = self._kubectl("get", "pods", "-o", "json", *words)
        return msgspec.json.decode(text, type=_Pods).items

    def wait_running(self, job: str, count: int) -> None:
        """Wait until `count` pods of the job run or have succeeded.

        On a busy machine, one may end before the next look.
        """

        def phases() -> Counter[str]:
            return Counter(pod.status.phase for pod in self.pods("-l", f"job-name={job}"))

        self.scene.wait(
            lambda: phases()["Running"] + phases()["Succeeded"] == count,
            lambda: f"{count} pods of {job} should run, and are {dict(phases())}",
        )

    def wait_complete(self, job: str) -> None:
        """Wait until the job has succeeded."""
        path = '{.status.conditions[?(@.type=="Complete")].status}'
        self.scene.wait(
            lambda: self._kubectl("get", "job", job, "-o", f"jsonpath={path}") == "True",
            lambda: f"the Job {job} is not Complete",
        )

    def _kubectl(self, *words: str) -> str:
        return self.scene.plane.kubectl(*_in_namespace(words))


def _in_namespace(words: Sequence[str]) -> list[str]:
    return [*words] if "-n" in words else [*words, "-n", NAMESPACE]


def prepare(stage: Stage) -> None:
    """Make the namespace, the queues and the directories of the volumes."""
    stage.scene.plane.kubectl("create", "namespace", NAMESPACE)
    stage.submit("queues.yaml")
    for node, name in (("node-1", "checkpoints"), ("node-2", "results")):
        (stage.stack.nodes[node].shared / name).mkdir()
    path = r"{.items[*].status.allocatable.nvidia\.com/gpu}"
    stage.scene.wait(
        lambda: (
            stage.scene.plane.kubectl("get", "nodes", "-o", f"jsonpath={path}")
            == " ".join([str(GPUS)] * len(stage.stack.nodes))
        ),
        lambda: "the nodes do not offer their GPUs",
    )


def _train(stage: Stage) -> None:
    stage.submit("train.yaml")
    stage.wait_running("train", 4)
    pods = stage.show_pods("train")
    lines = stage.logs("train")
    _expect(Counter(pod.spec.node_name for pod in pods), {"node-1": 2, "node-2": 2})
    _expect(sorted(_found(r"rank (\d)", lines)), ["0", "1", "2", "3"])
    _expect(len(set(_found(r"(GPU-\S+)", lines))), 16)
    stage.wait_complete("train")
    stage.show("get", "jobs,podgroups")


def _devices(stage: Stage) -> None:
    stage.submit("devices.yaml")
    stage.wait_running("devices", 4)
    lines = stage.logs("devices")
    expected = [f"node-{node}: Dev-{device}" for node in (1, 2) for device in (1, 2)]
    _expect(sorted(lines), expected)
    stage.wait_complete("devices")


def _shared_gpu(stage: Stage) -> None:
    stage.submit("notebooks.yaml")
    stage.wait_running("notebooks", 3)
    lines = stage.logs("notebooks")
    seen = Counter(_found(r"0\.5\S* of (GPU-\S+)", lines))
    _expect(sorted(seen.values()), [1, 2])
    stage.show("get", "pods", "-n", _RESERVATIONS, "-o", "wide")
    held = stage.pods("-n", _RESERVATIONS)
    _expect([pod.status.phase for pod in held], ["Running", "Running"])
    devices = {pod.metadata.annotations.get("run.ai/reserve_for_gpu_index") for pod in held}
    _expect(devices, set(seen))
    stage.show("delete", "job", "notebooks")
    stage.scene.wait(
        lambda: not stage.pods("-n", _RESERVATIONS),
        lambda: "the reservation pods did not leave with the pods that share the GPUs",
    )


def _reclaim(stage: Stage) -> None:
    stage.submit("checkpoint.yaml")
    stage.wait_running("long", 2)
    stage.submit("urgent.yaml")
    stage.wait_running("urgent", 3)
    stage.show("get", "pods", "-l", "job-name in (long, urgent)", "-o", "wide")
    stage.show("get", "events", "--field-selector", "reason=Evicted")
    folder = stage.stack.nodes["node-1"].shared / "checkpoints"
    saved = {
        f"rank {file.name} starts at step {file.read_text().strip()}" for file in folder.iterdir()
    }
    _expect(len(saved), 2)
    stage.wait_complete("urgent")
    stage.wait_complete("long")
    lines = stage.logs("long")
    _expect({line for line in lines if "starts" in line}, saved)
    _expect(sorted(_found(r"rank (\d) has ended at step 100", lines)), ["0", "1"])


def _claimed(stage: Stage) -> None:
    stage.submit("claimed.yaml")
    stage.wait_running("claimed", 2)
    pods = stage.show_pods("claimed")
    _expect({pod.spec.node_name for pod in pods}, {"node-2"})
    stage.show("get", "resourceclaims,persistentvolumeclaims")
    _expect(sorted(stage.logs("claimed")), ["rank 0: mode fast", "rank 1: mode fast"])
    stage.wait_complete("claimed")
    written = (stage.stack.nodes["node-2"].shared / "results").iterdir()
    _expect(
        sorted(file.read_text() for file in written), ["rank 0: mode fast\n", "rank 1: mode fast\n"]
    )


CHAPTERS: Final = (
    Chapter("The README's Job: a gang of four with four GPUs each", _train),
    Chapter("A gang with devices of a device plugin", _devices),
    Chapter("Three pods that share two GPUs, held by reservation pods", _shared_gpu),
    Chapter("A Job that is reclaimed, saves on SIGTERM and comes back", _reclaim),
    Chapter("A gang with a local volume and claimed devices", _claimed),
)


def _found(pattern: str, lines: Sequence[str]) -> list[str]:
    return [found[1] for line in lines if (found := re.search(pattern, line))]


def _expect(found: object, expected: object) -> None:
    if found != expected:
        raise ControlPlaneError(f"this is not as it should be: {found} instead of {expected}")
