"""The report of a node from files, socket and pods, and what becomes of contradictions."""

from dataclasses import replace
from typing import Any

import pytest

from bindery.api import numadetail
from bindery.api.names import NUMA_DETAIL_ANNOTATION
from bindery.api.numadetail import NumaDetail
from bindery.nodeagent.beside.podresources import PodName, PodResources
from bindery.nodeagent.beside.reporting import Origin, Outcome, Reading, ReportMaker
from bindery.nodecore.checkpoints import allocations, cpu
from bindery.nodecore.devices.state import Device
from tests.nodeagent.beside.besideworld import (
    KubeletStandIn,
    configuration,
    hardware,
    node,
    pod,
)

GPU = "example.com/gpu"


@pytest.fixture
def kubelet() -> KubeletStandIn:
    return KubeletStandIn()


def reading(kubelet: KubeletStandIn, *pods: Any, **fields: Any) -> Reading:
    seen = Reading(node(), hardware(), kubelet.text, kubelet.blobs, kubelet.answers, pods)
    return replace(seen, **fields)


def detail(outcome: Outcome) -> NumaDetail:
    assert outcome.body is not None, outcome.problems
    return numadetail.decode(outcome.body["metadata"]["annotations"][NUMA_DETAIL_ANNOTATION])


def available(outcome: Outcome, resource: str = "cpu") -> list[str]:
    assert outcome.body is not None, outcome.problems
    return [
        each["available"]
        for zone in outcome.body["zones"]
        for each in zone["resources"]
        if each["name"] == resource
    ]


def test_pods_of_any_scheduler_are_in_the_report(kubelet: KubeletStandIn) -> None:
    one, other = pod("one"), pod("other", cpu="3")
    kubelet.admit(one)
    kubelet.admit(other)

    found = ReportMaker().report(reading(kubelet, one, other))

    assert found.problems == {}
    assert detail(found).pods == ["uid-one", "uid-other"]
    assert available(found) == ["1", "1"]


def test_a_pod_that_the_kubelet_has_not_admitted_is_left_out(kubelet: KubeletStandIn) -> None:
    """Schedulers deduct it until a report lists it, which then has to have its zones."""
    new, shared = pod("new"), pod("shared", cpu="500m", phase="Running")

    found = ReportMaker().report(reading(kubelet, new, shared))

    assert detail(found).pods == ["uid-shared"]


def test_a_pod_in_the_file_of_allocations_is_admitted(kubelet: KubeletStandIn) -> None:
    waits = pod("waits", cpu="500m")
    blob = allocations.encode({"uid-waits": allocations.AllocatedPod({})})

    found = ReportMaker().report(
        reading(kubelet, waits, files={**kubelet.blobs, allocations.FILE: blob})
    )

    assert detail(found).pods == ["uid-waits"]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_what_an_ended_pod_held_is_free(kubelet: KubeletStandIn, phase: str) -> None:
    ended = pod("one")
    kubelet.admit(ended)

    found = ReportMaker().report(reading(kubelet, pod("one", phase=phase)))

    assert detail(found).pods == []
    assert available(found) == ["3", "4"]


def test_a_static_pod_is_known_by_its_copy_at_the_api_server(kubelet: KubeletStandIn) -> None:
    static = pod("static")
    kubelet.admit(static)
    copy = pod("copy", **{"kubernetes.io__config.hash": "uid-static"})

    found = detail(ReportMaker().report(reading(kubelet, copy)))

    assert found.pods == ["uid-copy"]
    assert found.held is not None
    assert found.held["uid-copy"].held["node-0"]["cpu"] == 2


def test_devices_come_from_the_socket_by_the_names_of_pods(kubelet: KubeletStandIn) -> None:
    one = pod("one")
    kubelet.admit(one)
    kubelet.answers = PodResources(
        {GPU: (Device("a", (0,)), Device("b", (1,)))},
        {PodName("ns", "one"): {"app": {GPU: frozenset("b")}}},
    )

    found = ReportMaker().report(reading(kubelet, one))

    assert available(found, GPU) == ["1", "0"]
    assert detail(found).devices == {GPU: {"node-0": ["a"], "node-1": []}}


def test_a_corrupt_checkpoint_leaves_the_last_report(kubelet: KubeletStandIn) -> None:
    blob = kubelet.blobs[cpu.FILE].replace(b'"0-7"', b'"0-6"')
    assert blob != kubelet.blobs[cpu.FILE]

    found = ReportMaker().report(reading(kubelet, files={**kubelet.blobs, cpu.FILE: blob}))

    assert found.body is None
    text = found.problems[Origin.CHECKPOINTS]
    assert cpu.FILE in text
    assert "checkpoint is corrupted; the last report stays" in text


def test_a_checkpoint_of_another_machine_leaves_the_last_report(kubelet: KubeletStandIn) -> None:
    fewer = {path: text for path, text in hardware().items() if not path.startswith("node/node1")}

    found = ReportMaker().report(
        reading(kubelet, hardware=fewer, configuration=configuration(memoryManagerPolicy=None))
    )

    assert found.body is None
    assert set(found.problems) & {Origin.CHECKPOINTS, Origin.MACHINE}


def test_policies_that_differ_from_the_checkpoints_are_named(kubelet: KubeletStandIn) -> None:
    text = configuration(cpuManagerPolicy="none", reservedSystemCPUs="0")

    found = ReportMaker().report(reading(kubelet, configuration=text))

    assert detail(found).cpu_manager_policy == "static"
    assert "'static' is believed" in found.problems[Origin.CONFIGURATION]


def test_a_configuration_that_has_become_unreadable_is_believed_as_it_was(
    kubelet: KubeletStandIn,
) -> None:
    reporter = ReportMaker()
    before = reporter.report(reading(kubelet))

    found = reporter.report(reading(kubelet, configuration="{"))

    assert found.body == before.body
    assert "the settings before are believed" in found.problems[Origin.CONFIGURATION]


@pytest.mark.parametrize("text", [None, "{", "kind: Config"])
def test_without_any_configuration_there_is_no_report(
    kubelet: KubeletStandIn, text: str | None
) -> None:
    """A report with a guessed policy would let the scheduler predict what no kubelet does."""
    found = ReportMaker().report(reading(kubelet, configuration=text))

    assert found.body is None
    assert found.problems[Origin.CONFIGURATION].endswith("; the last report stays")


def test_settings_that_do_not_fit_the_machine_are_named(kubelet: KubeletStandIn) -> None:
    found = ReportMaker().report(
        reading(kubelet, configuration=configuration(systemReserved={"memory": "1Gi"}))
    )

    assert found.body is None
    assert "do not fit the machine" in found.problems[Origin.MACHINE]
