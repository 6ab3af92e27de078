"""GPUs of every make and MIG instances: queues count them, nodes compare the resource itself."""

import pytest

from bindery.api.gpus import GpuResources, mig_slices
from bindery.scheduler.engine import Engine
from tests.scheduler.schedulerworld import (
    add,
    delete,
    engine_with,
    gang,
    node,
    plan,
    pod,
    queue,
    session_of,
)

MIG = "nvidia.com/mig-2g.10gb"


@pytest.mark.parametrize(
    ("resource", "gpus"),
    [
        ("nvidia.com/mig-1g.5gb", 1),
        ("nvidia.com/mig-1g.10gb", 1),
        ("nvidia.com/mig-1g.5gb.me", 1),
        ("nvidia.com/mig-4g.20gb", 4),
        ("nvidia.com/mig-7g.80gb", 7),
        ("nvidia.com/mig-5g.20gb", 0),
        ("nvidia.com/mig-1g", 0),
        ("nvidia.com/mig-1g.0gb", 0),
        ("nvidia.com/gpu", 0),
        ("nvidia.com/gpumem", 0),
        ("amd.com/gpu", 1),
        ("gpu.intel.com/i915", 1),
        ("gpu.intel.com/memory.max", 0),
        ("habana.ai/gaudi", 1),
        ("google.com/tpu", 1),
        ("cpu", 0),
    ],
)
def test_units_of_each_resource_count_as_a_number_of_gpus(resource: str, gpus: int) -> None:
    assert GpuResources().gpus_of(resource) == gpus


def test_patterns_in_the_configuration_select_gpu_resources() -> None:
    resources = GpuResources(["gpu.intel.com/*"])
    assert (resources.gpus_of("gpu.intel.com/xe"), resources.gpus_of("amd.com/gpu")) == (1, 0)
    assert mig_slices(MIG) == resources.gpus_of(MIG) == 2


def held(engine: Engine, name: str) -> int:
    """Return the GPUs that a queue holds, in milli GPUs."""
    state = engine.cluster.state
    return int(state.queues.allocated[state.axis.index("gpu"), state.queues.row(name)])


def test_amounts_of_queues_return_to_zero_when_the_pods_are_deleted() -> None:
    running = [pod(f"r{i}", 1, queue="q", on="n", more={MIG: 1, "amd.com/gpu": 1}) for i in (0, 1)]
    engine = engine_with(node("n", 64, more={MIG: 4, "amd.com/gpu": 4}), queue("q"), *running)
    assert held(engine, "q") == 6000

    delete(engine.cluster, running[0])
    assert held(engine, "q") == 3000
    delete(engine.cluster, running[1])
    assert held(engine, "q") == 0


def test_a_plan_that_is_discarded_leaves_no_gpus_in_the_queue() -> None:
    engine = engine_with(
        node("n", 64, more={MIG: 1}), queue("q"), *gang("g", 2, queue="q", more={MIG: 1})
    )

    assert plan(engine) == {}
    assert held(engine, "q") == 0


def test_a_limit_of_gpus_applies_to_mig_instances() -> None:
    items = [pod(f"p{i}", 1, queue="q", more={MIG: 1}) for i in range(3)]
    engine = engine_with(node("n", 64, more={MIG: 4}), queue("q", gpu=4), *items)

    assert len(plan(engine)) == 2
    assert held(engine, "q") == 4000


def test_the_total_of_queues_is_the_sum_over_all_makes_of_gpus() -> None:
    cluster = engine_with(
        node("a", 8, gpu=2, more={MIG: 3}), node("b", 8, more={"amd.com/gpu": 4})
    ).cluster
    add(cluster, pod("other", 1, scheduler="other", on="b", more={"amd.com/gpu": 1}))

    total = session_of(cluster).state.nodes.total()

    assert total[cluster.state.axis.index("gpu")] == (2 + 3 * 2 + 4 - 1) * 1000


def test_the_request_of_a_mig_pod_has_the_mig_resource_type() -> None:
    engine = engine_with(node("n", 64, more={MIG: 1}), pod("p", 1, more={MIG: 1}))
    ((binding,),) = (draft.spec.pods for draft in engine.cycle())
    assert binding.received_resource_type == "MigInstance"
