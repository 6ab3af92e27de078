"""The packing experiment: arrivals, measures, and the engine deciding one pod at a time."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.quality import baselines, engine, experiments, figures
from benchmarks.quality.allocation import columns
from benchmarks.quality.figures import KNOWN, Result
from benchmarks.quality.gorand import GoRandom
from benchmarks.quality.traces import Run, make_run, names, published
from bindery.simulation.openb import NodeRow, TaskRow

NODES = "sn,cpu_milli,memory_mib,gpu,model\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
KINDS = ((1, 1000), (1, 300), (1, 700), (2, 1000), (0, 0))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a folder with twelve nodes and thirty tasks, and one variant."""
    nodes = [f"n{i},{8000 + 8000 * (i % 3)},65536,{1 + i % 4},{'AB'[i % 2]}" for i in range(11)]
    (tmp_path / "nodes.csv").write_text(NODES + "\n".join([*nodes, "c,8000,65536,0,"]) + "\n")
    tasks = []
    for i in range(30):
        gpus, milli = KINDS[i % len(KINDS)]
        tasks.append(f"t{i:03},{500 + 500 * (i % 4)},1024,{gpus},{milli},{'A|B' if i % 7 else 'A'}")
    (tmp_path / "pods.csv").write_text(PODS + "\n".join(tasks) + "\n")
    (tmp_path / "variants").mkdir()
    shape = PODS.removeprefix("name,")
    (tmp_path / "variants" / "heavy.csv").write_text(shape + "1000,1024,4,1000,\n" * 30)
    (tmp_path / "published_alloc.csv").write_text(
        "trace,policy,seed,a100,a130\ndefault,FGD,42,90.0,91.0\ndefault,FGD,43,92.0,93.0\n"
    )
    return tmp_path


def test_random_numbers_equal_the_numbers_of_go() -> None:
    """The documented sequence of Go's playground: rand.Seed(1), ten times rand.Intn(100)."""
    draw = GoRandom(1)

    assert [draw.below(100) for _ in range(10)] == [81, 87, 47, 59, 81, 18, 25, 40, 56, 0]


def test_a_permutation_and_a_shuffle_keep_all_items() -> None:
    draw, items = GoRandom(42), list(range(50))

    draw.shuffle(items)

    assert sorted(items) == sorted(draw.permutation(50)) == list(range(50))
    assert items != list(range(50))


def test_tasks_arrive_up_to_130_percent_after_each_has_arrived_once(data: Path) -> None:
    run = make_run(data, "default", 42)

    requested = sum(task.total_milli for task in run.arrivals)
    assert len(run.nodes) == 11  # without the node that has no GPU
    assert 1.2 * run.capacity_milli < requested < 1.3 * run.capacity_milli + 8000
    first = run.arrivals[: len(run.trace)]
    assert sorted(t.name for t in first) == sorted(t.name for t in run.trace)
    assert run == make_run(data, "default", 42)
    assert run.arrivals != make_run(data, "default", 43).arrivals


def test_a_trace_that_requests_more_than_the_load_is_reduced(data: Path) -> None:
    run = make_run(data, "heavy", 42)

    assert names(data) == ["default", "heavy"]
    assert sum(task.total_milli for task in run.arrivals) <= 1.3 * run.capacity_milli


def test_another_order_of_nodes_keeps_the_arrivals(data: Path) -> None:
    one, other = make_run(data, "default", 42), make_run(data, "default", 42, node_order=1)

    assert one.arrivals == other.arrivals
    assert one.nodes != other.nodes
    assert sorted(n.name for n in one.nodes) == sorted(n.name for n in other.nodes)


def test_a_column_is_the_mean_over_its_arrivals() -> None:
    task = TaskRow("t", 0, 0, 1, 1000, ())
    run = Run((NodeRow("n", 0, 0, 200, ""),), (task,), (task,) * 4)

    # 0.5, 1.0, 1.5 and 2.0 % are requested: rounded half to even, columns 0, 1, 2 and 2.
    found = columns(run, np.array([True, False, True, True]))

    assert found == {0: 0.5, 1: 0.5, 2: 1.25}


@pytest.mark.parametrize("knows", [True, False])
def test_a_cycle_with_many_arrivals_decides_like_cycles_with_one_arrival(
    data: Path, *, knows: bool
) -> None:
    run = make_run(data, "default", 42)
    configuration = engine.configuration(run if knows else None)

    at_once = engine.play(run, configuration, arrivals_by_cycle=len(run.arrivals))
    singly = engine.play(run, configuration, arrivals_by_cycle=1)

    assert at_once.nodes.count("") > 0
    if knows:  # what is learned may differ within a cycle
        assert singly.nodes == at_once.nodes
    assert singly.nodes == engine.play(run, configuration, arrivals_by_cycle=1).nodes


@pytest.mark.parametrize("policy", [*baselines.POLICIES, *experiments.POLICIES, "engine"])
def test_no_policy_exceeds_the_capacity_of_a_node(data: Path, policy: str) -> None:
    run = make_run(data, "default", 42)

    if policy == "engine":
        placed = engine.play(run, engine.configuration(), 20).placed
    elif policy in experiments.POLICIES:
        placed = experiments.play(run, policy)
    else:
        placed = baselines.play(run, policy, 42)

    held = sum(
        t.total_milli for t, is_placed in zip(run.arrivals, placed, strict=True) if is_placed
    )
    assert 0.5 * run.capacity_milli < held <= run.capacity_milli


@pytest.mark.parametrize("seed", range(42, 47))
def test_no_task_of_a_batch_displaces_an_earlier_task(data: Path, seed: int) -> None:
    run = make_run(data, "default", seed)

    singly = experiments.play(run, experiments.ONE_BY_ONE)
    at_once = experiments.play(run, experiments.BATCH, arrivals_by_batch=len(run.arrivals))

    assert not singly.all()
    assert at_once.tolist() >= singly.tolist()  # the first difference is in favour of the batch


def test_a_batch_keeps_a_scarce_node_for_a_task_that_fits_only_there() -> None:
    nodes = (NodeRow("a", 8000, 1024, 1, "A"), NodeRow("b", 8000, 1024, 1, "B"))
    anywhere, on_a = TaskRow("one", 8000, 1, 1, 1000, ()), TaskRow("two", 8000, 1, 1, 1000, ("A",))
    run = Run(nodes, (anywhere,), (anywhere, on_a))  # the workload does not have the second kind

    singly = experiments.play(run, experiments.ONE_BY_ONE)
    at_once = experiments.play(run, experiments.BATCH)

    assert singly.tolist() == [True, False]
    assert at_once.tolist() == [True, True]


def test_best_fit_chooses_the_node_with_the_least_free_capacity() -> None:
    nodes = tuple(NodeRow(name, cpu, 1024, 2, "") for name, cpu in (("a", 64000), ("b", 8000)))
    tasks = (TaskRow("one", 4000, 1, 1, 1000, ()), TaskRow("two", 32000, 1, 2, 1000, ()))

    placed = baselines.play(Run(nodes, tasks, tasks), "best-fit", 1)

    assert placed.all()  # the first task leaves the larger node whole


def test_means_are_compared_with_the_published_means_of_the_same_seeds(data: Path) -> None:
    results = [
        Result("default", KNOWN, seed, None, {100: 80.0 + seed, 130: 81.0 + seed}, {}, 1.0)
        for seed in (42, 43)
    ]

    found = figures.means(results, published(data))

    assert found == {
        "default": {
            KNOWN: {"100": 122.5, "130": 123.5},
            "published-fgd": {"100": 91.0, "130": 92.0},
        }
    }
    assert len(list(figures.tables(results, published(data)))) == 2
