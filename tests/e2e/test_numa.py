"""Pods on hollow nodes that refuse pods that they cannot align to NUMA zones."""

from collections.abc import Sequence
from random import Random

import pytest

from bindery.api.configuration import PluginConfiguration, SchedulerConfiguration
from devcluster.components import Component, Components
from devcluster.plane import ControlPlane
from tests.definitions import install_node_topologies
from tests.e2e.numaload import Load, Outcome, Size
from tests.e2e.support import Corner, Gang, binder_configuration, scheduler_configuration
from tests.sizes import IS_LONG

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("recording_binder", "plugin_path")]

LOAD_TIMEOUT_S = 1800 if IS_LONG else 600
"""How long a test with a load may take: a large one takes several minutes on a busy machine."""

SAMPLE = Size(nodes=4, pods=24, gap_s=0.2, run_s=(1, 3))
FULL = Size(nodes=12, pods=500, gap_s=0.35, run_s=(3, 9))

NUMA = PluginConfiguration(name="numa")


@pytest.fixture(scope="module", autouse=True)
def definition(control_plane: ControlPlane) -> None:
    install_node_topologies(control_plane)


@pytest.fixture(scope="module")
def recording_binder(module_components: Components) -> Component:
    """A binder that writes the predicted zones onto pods."""
    return module_components.start_binder(binder_configuration(NUMA)).wait_ready()


def with_plugins(pool: str, *instead: PluginConfiguration) -> SchedulerConfiguration:
    """Return the default configuration with `instead` in place of the plugin numa."""
    default = scheduler_configuration(pool)
    plugins = [
        each
        for plugin in default.plugins
        for each in (instead if plugin.name == NUMA.name else (plugin,))
    ]
    return default.model_copy(update={"plugins": tuple(plugins)})


async def played(
    corner: Corner, components: Components, size: Size, instead: Sequence[PluginConfiguration]
) -> Outcome:
    load = Load(corner, components, size, Random(1))
    agent = await load.start_nodes()
    components.start_scheduler(with_plugins(corner.pool, *instead)).wait_ready()
    outcome = await load.play(agent)
    print(f"with {[each.name for each in instead]} in place of numa: {outcome}")
    return outcome


@pytest.mark.timeout(LOAD_TIMEOUT_S)
async def test_nodes_refuse_no_pod_for_a_predictable_reason(
    corner: Corner, components: Components
) -> None:
    outcome = await played(corner, components, FULL if IS_LONG else SAMPLE, [NUMA])

    assert outcome.knowable == []
    assert outcome.phases["Succeeded"] > sum(outcome.reasons.values())


async def test_a_gang_that_no_node_can_align_waits_and_reports_it(
    corner: Corner, components: Components
) -> None:
    load = Load(corner, components, SAMPLE, Random(1))
    await load.start_nodes()
    components.start_scheduler(with_plugins(corner.pool, NUMA)).wait_ready()
    limits = {"cpu": "4", "memory": "1Gi"}
    container = {"name": "worker", "image": "worker", "resources": {"limits": limits}}
    gang = Gang("gang", 2 * SAMPLE.nodes + 1, pod={"containers": [container]})

    await corner.submit(gang)

    said = await corner.wait_condition(gang, "False", "Unschedulable")
    assert "8 of 9 pods fit" in said.message
    assert (
        "cannot align it to their NUMA zones (no single NUMA zone has 4 free CPUs)" in said.message
    )
    assert await corner.bound_count(gang) == 0
    fitting = Gang("fitting", 2 * SAMPLE.nodes, pod=gang.pod)
    await corner.submit(fitting)
    await corner.wait_bound(fitting)


@pytest.mark.long("a comparison of minutes")
@pytest.mark.timeout(LOAD_TIMEOUT_S)
@pytest.mark.parametrize("instead", ["none", "believer"])
async def test_nodes_refuse_pods_without_the_prediction_or_its_ledger(
    corner: Corner, components: Components, instead: str
) -> None:
    plugins = [] if instead == "none" else [PluginConfiguration(name=instead)]

    outcome = await played(corner, components, FULL, plugins)

    assert outcome.knowable
