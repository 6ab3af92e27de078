"""A hollow node is killed with SIGKILL at each write of a checkpoint, and continues.

The agent's part is played by a forked process: it takes the pods one after another and notes each
step that is done, as the API server would show it to the next agent.
"""

import multiprocessing
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bindery.nodeagent.kubelets import Kubelets
from bindery.nodeagent.pod_objects import AgentPod
from bindery.nodeagent.shapes import ManagedNode
from tests.nodeagent.numashapes import SETTINGS, one_node, pod, seen
from tests.sizes import IS_LONG, examples

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload([__name__])
FILES = (
    "cpu_manager_state",
    "memory_manager_state",
    "device-plugins/kubelet_internal_checkpoint",
)


@dataclass(frozen=True)
class Event:
    """A pod is bound, or is gone."""

    name: str
    limits: dict[str, str] | None = None
    init: dict[str, str] | None = None

    @property
    def is_end(self) -> bool:
        return self.limits is None

    def pod(self, phase: str) -> AgentPod:
        spec: dict[str, Any] = {}
        if self.init is not None:
            resources = {"requests": self.init, "limits": self.init}
            spec["initContainers"] = [{"name": "init", "resources": resources}]
        return pod(self.name, self.limits, phase=phase, **spec)


SMALL = {"cpu": "2", "memory": "3Gi", "nvidia.com/gpu": "1"}
LARGE = {"cpu": "8", "memory": "20Gi"}
EVENTS = (
    Event("a", SMALL),
    Event("b", LARGE),
    Event("c", {"cpu": "1500m", "memory": "1Gi"}),
    Event("d", SMALL, init={"cpu": "4", "memory": "6Gi"}),
    Event("a"),
    Event("wide", {"cpu": "18", "memory": "40Gi"}),
    Event("e", SMALL),
    Event("b"),
    Event("f", LARGE),
    Event("f"),
)


class Run:
    """An agent's life in `directory`, and what the API server knows."""

    def __init__(
        self, node: ManagedNode, directory: Path, events: Sequence[Event] = EVENTS
    ) -> None:
        self.node, self.directory, self.events = node, directory, events
        self.journal = directory / "journal"
        self.checkpoints = directory / "checkpoints"

    def go_on(self) -> None:
        """Start an agent, which does what is left."""
        done = self._done()
        kubelets = Kubelets(
            node_object=seen,
            changed=lambda _node: None,
            complain=lambda _node, problem: pytest.fail(problem),
            clock=lambda: 0.0,
            checkpoints=self.checkpoints,
        )
        assert kubelets.prepare(self.node) is None
        kubelets.open(self.node, self._present(done))
        for event in self.events[len(done) :]:
            uid = f"uid-{event.name}"
            if event.is_end:
                kubelets.release(self.node.name, uid)
                self._note("gone")
            else:
                answer = kubelets.admit(self.node, event.pod("Pending"))
                self._note("Running" if answer.admit else "Failed")

    def content(self) -> dict[str, bytes]:
        directory = self.checkpoints / self.node.name
        return {name: (directory / name).read_bytes() for name in FILES}

    def outcomes(self) -> list[str]:
        return self._done()

    def _done(self) -> list[str]:
        return self.journal.read_text().split() if self.journal.exists() else []

    def _note(self, outcome: str) -> None:
        with self.journal.open("a") as file:
            file.write(f"{outcome}\n")

    def _present(self, done: Sequence[str]) -> list[AgentPod]:
        """Return the pods that are there, with the one whose admission was interrupted."""
        phases = {event.name: outcome for event, outcome in zip(self.events, done, strict=False)}
        for event in self.events[len(done) : len(done) + 1]:
            phases[event.name] = "gone" if event.is_end else "Pending"
        first = {event.name: event for event in reversed(self.events) if not event.is_end}
        return [first[name].pod(phase) for name, phase in phases.items() if phase != "gone"]


def killed(run: Run, at: int, *, is_renamed: bool) -> bool:
    """Let `run` go on in a process that is killed at its write number `at`; return whether it was.

    The process is forked from a server without threads: a fork of the tests' own process would
    copy locks that its threads hold.

    Args:
        run: the agent's life.
        at: the number of the write, from 1.
        is_renamed: whether it dies after the file has its name, or before.
    """
    child = _FORKS.Process(target=_go_on, args=(run, at, is_renamed))
    child.start()
    child.join()
    assert child.exitcode in (0, -signal.SIGKILL)
    return child.exitcode != 0


def _go_on(run: Run, at: int, is_renamed: bool) -> None:
    os.fsync = _no_sync  # type: ignore[assignment]
    _die_at(at, is_renamed=is_renamed)
    run.go_on()


def _no_sync(_file: Any) -> None:
    """The machine itself goes on."""


def _die_at(at: int, *, is_renamed: bool) -> None:
    count = 0
    replace = Path.replace

    def dying(self: Path, target: str | os.PathLike[str]) -> Path:
        nonlocal count
        count += 1
        if count == at and not is_renamed:
            os.kill(os.getpid(), signal.SIGKILL)
        renamed = replace(self, target)
        if count == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return renamed

    Path.replace = dying  # type: ignore[method-assign, assignment]  # the process dies in it


POLICIES = (
    ("single-numa-node", "container"),
    ("single-numa-node", "pod"),
    ("restricted", "container"),
    ("best-effort", "pod"),
)


@pytest.mark.parametrize("is_renamed", [False, True])
@pytest.mark.parametrize(("policy", "scope"), POLICIES if IS_LONG else POLICIES[:1])
def test_the_state_is_the_same_after_a_kill_at_any_write(
    policy: str, scope: str, is_renamed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", _no_sync)
    chosen = {**SETTINGS, "topologyManagerPolicy": policy, "topologyManagerScope": scope}
    node = one_node(kubelet=chosen)
    undisturbed = Run(node, tmp_path)
    undisturbed.go_on()
    assert "Running" in undisturbed.outcomes()
    kills = 0
    while True:
        run = Run(node, tmp_path / f"kill-{kills}")
        run.directory.mkdir()
        if not killed(run, kills + 1, is_renamed=is_renamed):
            break
        kills += 1

        run.go_on()

        assert run.outcomes() == undisturbed.outcomes(), kills
        assert run.content() == undisturbed.content(), kills
    assert kills > 2 * len(EVENTS)


AMOUNTS = st.fixed_dictionaries(
    {
        "cpu": st.sampled_from(["1", "1500m", "2", "3", "4", "8", "18"]),
        "memory": st.sampled_from(["1Gi", "3Gi", "8Gi", "20Gi", "40Gi"]),
    },
    optional={"nvidia.com/gpu": st.sampled_from(["1", "2", "3"])},
)
INIT_AMOUNTS = st.fixed_dictionaries({"cpu": st.just("4"), "memory": st.just("9Gi")})


@st.composite
def stories(draw: st.DrawFn) -> tuple[Event, ...]:
    """Pods come, and some of them go."""
    events: list[Event] = []
    alive: list[str] = []
    for number in range(draw(st.integers(1, 10))):
        if bool(alive) and draw(st.booleans()):
            events.append(Event(alive.pop(draw(st.integers(0, len(alive) - 1)))))
        else:
            init = draw(st.none() | INIT_AMOUNTS)
            events.append(Event(f"pod-{number}", draw(AMOUNTS), init))
            alive.append(f"pod-{number}")
    return tuple(events)


@settings(max_examples=examples(5))
@given(
    events=stories(),
    policy=st.sampled_from(["none", "best-effort", "restricted", "single-numa-node"]),
    scope=st.sampled_from(["container", "pod"]),
    at=st.integers(1, 40),
    is_renamed=st.booleans(),
)
def test_any_sequence_of_pods_ends_in_the_same_state_after_a_kill(
    events: tuple[Event, ...], policy: str, scope: str, at: int, is_renamed: bool
) -> None:
    chosen = {**SETTINGS, "topologyManagerPolicy": policy, "topologyManagerScope": scope}
    node = one_node(kubelet=chosen)
    with TemporaryDirectory() as directory:
        undisturbed = Run(node, Path(directory), events)
        undisturbed.go_on()
        run = Run(node, Path(directory) / "killed", events)
        run.directory.mkdir()
        if killed(run, at, is_renamed=is_renamed):
            run.go_on()

        assert run.outcomes() == undisturbed.outcomes()
        assert run.content() == undisturbed.content()
