"""The distribution of tests to workers: one computes while the others wait for control planes."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from xdist.remote import Producer

from tests.spreading import APART, DEMO, Spread, longest_first


class Worker:
    """A worker of xdist that records the tests that it should run."""

    def __init__(self, number: int) -> None:
        self.gateway = SimpleNamespace(id=f"gw{number}")
        self.shutting_down = False
        self.sent: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.sent += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def played(folder: Path, workers: int, tests: list[str]) -> list[list[str]]:
    """Return the tests that each worker runs; every worker takes equally long for a test."""
    config: Any = SimpleNamespace(
        getvalue=lambda _: ["popen"] * workers,
        option=SimpleNamespace(loadscopereorder=False),
        rootpath=folder,
    )
    spread = Spread(config, Producer("spread"))
    nodes: list[Any] = [Worker(number) for number in range(workers)]
    for node in nodes:
        spread.add_node(node)
        spread.add_node_collection(node, tests)
    spread.schedule()
    done = [0] * workers
    while any(done[number] < len(node.sent) for number, node in enumerate(nodes)):
        for number, node in enumerate(nodes):
            if done[number] < len(node.sent):
                spread.mark_test_complete(node, node.sent[done[number]])
                done[number] += 1
    assert all(node.shutting_down for node in nodes)
    return [[tests[index] for index in node.sent] for node in nodes]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(12):
        (tmp_path / f"test_e2e_{number}.py").write_text("pytestmark = pytest.mark.e2e\n")
        (tmp_path / f"test_pure_{number}.py").write_text("import pytest\n")
    return tmp_path


def of_kind(kind: str, files: int) -> list[str]:
    return [f"test_{kind}_{file}.py::test_{n}" for file in range(files) for n in range(4)]


def test_every_test_runs_once_and_each_file_in_one_worker(folder: Path) -> None:
    tests = of_kind("e2e", 7) + of_kind("pure", 9)

    runs = played(folder, 4, tests)

    assert sorted(test for run in runs for test in run) == sorted(tests)
    files = [{test.partition("::")[0] for test in run} for run in runs]
    assert sum(map(len, files)) == 16


def test_the_last_worker_never_starts_a_control_plane(folder: Path) -> None:
    *others, last = played(folder, 4, of_kind("e2e", 12) + of_kind("pure", 3))

    assert sorted(last) == sorted(of_kind("pure", 3))
    assert all("pure" not in test for run in others for test in run)


def test_the_other_workers_run_pure_tests_after_all_end_to_end_tests(folder: Path) -> None:
    *others, last = played(folder, 3, of_kind("pure", 12) + of_kind("e2e", 2))

    assert [test for test in last if "e2e" in test] == []
    assert all("e2e" in run[0] and "pure" in run[-1] for run in others)


@pytest.mark.parametrize("kind", ["e2e", "pure"])
def test_tests_of_one_kind_are_distributed_to_all_workers(kind: str, folder: Path) -> None:
    assert all(len(run) >= 8 for run in played(folder, 3, of_kind(kind, 12)))


def test_two_workers_run_tests_of_both_kinds(folder: Path) -> None:
    runs = played(folder, 2, of_kind("e2e", 4) + of_kind("pure", 4))

    assert all(any("e2e" in test for test in run) for run in runs)


def test_tests_of_a_long_file_are_distributed_to_several_workers(folder: Path) -> None:
    assert DEMO in APART
    (folder / DEMO).parent.mkdir(parents=True)
    (folder / DEMO).write_text("pytestmark = pytest.mark.e2e\n")

    runs = played(folder, 2, [f"{DEMO}::test_{n}" for n in range(8)])

    assert all(runs)


def test_the_longest_tests_run_first() -> None:
    items: list[Any] = [
        SimpleNamespace(nodeid=name) for name in ("tests/a.py::x", f"{DEMO}::x", "tests/a.py::y")
    ]

    longest_first(items)

    assert [item.nodeid for item in items] == [f"{DEMO}::x", "tests/a.py::x", "tests/a.py::y"]
