"""Volumes, pending operations and plugins behave as the kubelet's, case by case.

A case is a list of calls. Each has the name of what is called, its arguments, and what it returns
or the error that it raises. `@disk` is the volume of that name in the table `specs`.
"""

import itertools
import re
from typing import Any

import pytest

from bindery.nodecore.errors import NodeCoreError
from bindery.nodecore.operations import OperationKey, PendingOperations
from bindery.nodecore.plugins import ActualPlugins, DesiredPlugins, Registered, Socket
from bindery.nodecore.plugins import plan as plan_plugins
from bindery.nodecore.volumes.actual import ActualVolumes, AttachedVolume
from bindery.nodecore.volumes.desired import DesiredVolumes, VolumeToMount
from bindery.nodecore.volumes.reconciler import Readiness, Step, StepKind, plan
from bindery.nodecore.volumes.specs import VolumeSpec
from tests.nodecore.kubelettables import Json, cases, tables


class World:
    """The states that a case works on."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.desired = DesiredVolumes()
        self.actual = ActualVolumes()
        self.pending = PendingOperations(lambda: self.now_s)
        uuids = itertools.count(1)
        self.wanted = DesiredPlugins(lambda: self.now_s, lambda: f"uuid-{next(uuids)}")
        self.there = ActualPlugins()

    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    def plan(self, *, has_added_pods: bool, by_controller: bool) -> list[Step]:
        readiness = Readiness(has_added_pods)
        return plan(
            self.desired,
            self.actual,
            self.pending,
            readiness,
            is_attached_by_controller=by_controller,
        )

    def start(self, kind: str, volume: str, pod: str) -> None:
        step = Step(StepKind(kind), volume, spec("disk"), pod)
        self.pending.start(step.key, step.kind)

    def finish(self, kind: str, volume: str, pod: str) -> None:
        self.pending.finish(Step(StepKind(kind), volume, spec("disk"), pod).key)

    def plugins_plan(self) -> list[Any]:
        steps = plan_plugins(self.wanted, self.there, self.pending)
        return [[step.name, step.socket.path, step.socket.uuid] for step in steps]


def spec(name: str) -> VolumeSpec:
    return VolumeSpec(**tables("volumes")["specs"][name])


def argument(call: str, found: Any) -> Any:
    if isinstance(found, str) and found.startswith("@"):
        return spec(found[1:])
    if isinstance(found, list) and call.startswith("pending."):
        return OperationKey(*found)
    if isinstance(found, dict):
        socket = Socket(*found["socket"])
        return socket if call.endswith("is_registered") else Registered(socket, "kind", "", "")
    return found


def answer(found: Any, wanted: Any) -> Any:
    """Return the result of a call in the form of the tables."""
    if isinstance(found, AttachedVolume):
        facts = {
            "device_path": found.device_path,
            "device": found.device,
            "is_attachable": found.is_attachable,
            "selinux_label": found.selinux_label,
            "mounts": {uid: one.state for uid, one in found.pods.items()},
            "reconstructed": [uid for uid, one in found.pods.items() if one.is_reconstructed],
        }
        return {name: facts[name] for name in wanted}
    if isinstance(found, list):
        return [in_list(one) for one in found]
    return found


def in_list(found: Any) -> Any:
    if isinstance(found, AttachedVolume):
        return found.name
    if isinstance(found, VolumeToMount):
        return [found.volume, found.pod_uid, list(found.outer_names), found.is_reported_in_use]
    if isinstance(found, Step):
        return found.kind
    if isinstance(found, Socket):
        return [found.path, found.uuid]
    if isinstance(found, Registered):
        return [found.socket.path, found.socket.uuid]
    return list(found[:2]) if isinstance(found, tuple) else found


def play(case: Json) -> None:
    world = World()
    for step in case["steps"]:
        name = step["call"]
        called: Any = world.plugins_plan if name == "plugins.plan" else world
        for part in name.split(".") if name != "plugins.plan" else ():
            called = getattr(called, part)
        arguments = [argument(name, one) for one in step.get("with", ())]
        if "raises" in step:
            with pytest.raises(NodeCoreError, match=re.escape(step["raises"])):
                called(*arguments, **step.get("named", {}))
            continue
        found = called(*arguments, **step.get("named", {}))
        if "gives" in step:
            assert answer(found, step["gives"]) == step["gives"], step


@cases("volumes", "desired")
def test_the_desired_volumes_of_pods_are_recorded(case: Json) -> None:
    play(case)


@cases("volumes", "actual")
def test_volumes_are_attached_and_mounted(case: Json) -> None:
    play(case)


@cases("volumes", "rounds")
def test_reconciliation_leads_from_the_actual_to_the_desired_state(case: Json) -> None:
    play(case)


@cases("volumes", "operations")
def test_operations_exclude_each_other_and_wait(case: Json) -> None:
    play(case)


@cases("volumes", "plugins")
def test_plugins_are_registered_and_unregistered(case: Json) -> None:
    play(case)
