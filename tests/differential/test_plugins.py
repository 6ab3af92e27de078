"""Each plugin of the built kube-scheduler has a counterpart in Bindery, or a documented reason.

The program itself writes its complete configuration. A plugin that the next release adds, also one
behind a feature gate, is on neither list below, and the test names it.
"""

import subprocess
from pathlib import Path

import pytest
import yaml

from bindery.api.configuration import DEFAULT_ACTIONS, DEFAULT_PLUGINS
from devcluster import settings
from devcluster.local import LocalControlPlane
from devcluster.plane import ControlPlane
from tests.required import lacking

pytestmark = pytest.mark.e2e  # needs the built kube-scheduler

EVERYTHING = "AllAlpha=true,AllBeta=true"

PLUGINS = {
    "DynamicResources": "dra",
    "GangScheduling": "gang",
    "ImageLocality": "imagelocality",
    "InterPodAffinity": "podaffinity",
    "NodeAffinity": "predicates",
    "NodeDeclaredFeatures": "predicates",
    "NodePorts": "hostports",
    "NodeResourcesBalancedAllocation": "fragmentation",
    "NodeUnschedulable": "predicates",
    "NodeVolumeLimits": "volumes",
    "PodTopologySpread": "topologyspread",
    "PrioritySort": "priority",
    "TaintToleration": "predicates",
    "TopologyPlacementGenerator": "topology",
    "VolumeBinding": "volumes",
    "VolumeRestrictions": "volumes",
    "VolumeZone": "volumes",
}
"""Plugin of kube-scheduler -> plugin of Bindery."""
ACTIONS = {"DefaultPreemption": "preempt"}
"""Plugin of kube-scheduler -> action of Bindery."""
REASONS = {
    "DefaultBinder": "the binder binds, in a process of its own",
    "NodeName": "a pod with a node name is bound, and is never planned",
    "NodeResourcesFit": "free room is a column of the node ledger, which every placement asks",
    "PodGroupPodsCount": "a gang is placed in the one domain that its topology plugin chose",
    "SchedulingGates": "a gated pod is no candidate: its job waits with the reason SchedulingGated",
}
"""Plugin of kube-scheduler -> why Bindery needs no plugin or action of this kind."""


def plugins_of(plane: LocalControlPlane, folder: Path, *arguments: str) -> set[str]:
    """Return the plugins that kube-scheduler enables, as its complete configuration has them."""
    given, written = folder / "given.yaml", folder / "written.yaml"
    given.write_text(settings.kube_scheduler(plane.admin_kubeconfig), encoding="utf-8")
    program = str(plane.binaries.kube_scheduler)
    done = subprocess.run(
        [program, f"--config={given}", f"--write-config-to={written}", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    (profile,) = yaml.safe_load(written.read_text(encoding="utf-8"))["profiles"]
    points = profile["plugins"].values()
    return {each["name"] for point in points for each in point.get("enabled", ())}


@pytest.fixture
def plane(control_plane: ControlPlane) -> LocalControlPlane:
    if not isinstance(control_plane, LocalControlPlane):
        lacking("only the own control plane has the program")
    return control_plane


@pytest.mark.parametrize("gates", ["", EVERYTHING], ids=["by default", "with all gates"])
def test_each_plugin_of_kube_scheduler_has_a_counterpart_or_a_reason(
    gates: str, plane: LocalControlPlane, tmp_path: Path
) -> None:
    found = plugins_of(plane, tmp_path, *([f"--feature-gates={gates}"] if gates else []))

    assert {"NodeResourcesFit", "NodeDeclaredFeatures", "DynamicResources"} <= found
    assert found - PLUGINS.keys() - ACTIONS.keys() - REASONS.keys() == set()


def test_no_list_names_a_plugin_that_kube_scheduler_no_longer_has(
    plane: LocalControlPlane, tmp_path: Path
) -> None:
    found = plugins_of(plane, tmp_path, f"--feature-gates={EVERYTHING}")

    assert PLUGINS.keys() | ACTIONS.keys() | REASONS.keys() == found


def test_the_counterparts_exist_and_are_enabled_by_default() -> None:
    assert set(PLUGINS.values()) <= set(DEFAULT_PLUGINS)
    assert set(ACTIONS.values()) <= set(DEFAULT_ACTIONS)
