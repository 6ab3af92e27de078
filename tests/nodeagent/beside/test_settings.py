"""A kubelet's settings from its configuration file and its checkpoints."""

import pytest

from bindery.nodeagent.beside import settings
from bindery.nodeagent.beside.settings import SettingsError
from bindery.nodecore.checkpoints import cpu, memory
from tests.nodeagent.beside.besideworld import KubeletStandIn, configuration


def test_a_file_has_many_keys_and_only_those_about_resources_count() -> None:
    found = settings.parse(configuration())

    assert found.cpu_manager_policy == "static"
    assert found.topology_manager_policy == "single-numa-node"
    assert found.feature_gates == {"CPUManagerPolicyAlphaOptions": True}


def test_keys_that_are_not_set_have_the_kubelets_defaults() -> None:
    found = settings.parse("kind: KubeletConfiguration\ncpuManagerPolicy: null\n")

    assert found.cpu_manager_policy == "none"
    assert found.memory_manager_policy == "None"
    assert found.topology_manager_scope == "container"
    assert found.eviction_hard == {"memory.available": str(100 << 20)}


@pytest.mark.parametrize(
    ("merges", "expected"),
    [
        (False, {"nodefs.available": "1%"}),
        (True, {"memory.available": str(100 << 20), "nodefs.available": "1%"}),
    ],
)
def test_thresholds_of_a_file_replace_the_defaults_unless_they_are_merged(
    merges: bool, expected: dict[str, str]
) -> None:
    text = configuration(
        evictionHard={"nodefs.available": "1%"}, mergeDefaultEvictionSettings=merges
    )

    assert settings.parse(text).eviction_hard == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: b: c", "it is not YAML"),
        ("[]", "it is no KubeletConfiguration"),
        ("kind: Config", "it is no KubeletConfiguration"),
        (configuration(topologyManagerPolicy="closest"), 'unknown policy: "closest"'),
        (configuration(reservedMemory="1Gi"), "a list is expected"),
    ],
)
def test_a_file_that_no_kubelet_starts_with_is_refused(text: str, reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        settings.parse(text)


def test_the_policies_of_the_checkpoints_are_believed() -> None:
    kubelet = KubeletStandIn()
    configured = settings.parse(configuration(cpuManagerPolicy="none"))

    found, differences = settings.in_force(configured, kubelet.blobs)

    assert found.cpu_manager_policy == "static"
    (text,) = differences
    assert text.startswith("the CPU manager runs with the policy 'static' by cpu_manager_state")


@pytest.mark.parametrize("blob", [b"", b"{}", b"not json"])
def test_checkpoints_that_cannot_be_read_change_nothing(blob: bytes) -> None:
    configured = settings.parse(configuration())

    assert settings.in_force(configured, {cpu.FILE: blob, memory.FILE: blob}) == (configured, [])
