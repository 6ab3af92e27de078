"""How `pytest --numprocesses` spreads the tests over its workers.

A file stays together, because its tests share components and the control plane of their worker.
Files of `APART` do not: each of their tests is long and has all its components to itself; of a long
run also the histories, which would keep one worker for hours. Those of
`TOGETHER` share real nodes. What takes longest begins first, so that no worker is left with it at
the end.

Tests on a control plane mostly wait, and the others compute. Of three workers or more, the last
takes only files without a control plane, while the others wait.
"""

from functools import cached_property
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests.sizes import IS_LONG

KILL_MATRIX = "tests/e2e/test_kill_matrix.py"
DEMO = "tests/devcluster/test_demo.py"
HISTORIES = "tests/histories/test_histories.py"
APART = frozenset({KILL_MATRIX, DEMO, *([HISTORIES] if IS_LONG else [])})
REAL_GANGS = "tests/e2e/realnode/test_real_gangs.py"
REAL_CHART = "tests/e2e/realnode/test_real_chart.py"
"""First of the tests on real nodes: it removes the installation, which the others share."""
TOGETHER = frozenset(
    {
        REAL_CHART,
        REAL_GANGS,
        "tests/e2e/realnode/test_real_and_hollow.py",
        "tests/e2e/realnode/test_real_resources.py",
        "tests/e2e/realnode/test_real_devices.py",
        "tests/e2e/realnode/test_real_share_plugin.py",
        "tests/e2e/realnode/test_real_life.py",
        "tests/e2e/realnode/test_real_failures.py",
        "tests/e2e/realnode/test_real_agent.py",
        "tests/e2e/realnode/test_real_agent_port.py",
        "tests/e2e/realnode/test_agent_gang.py",
        "tests/e2e/realnode/test_real_top.py",
        "tests/e2e/realnode/test_real_beside.py",
        "tests/e2e/realnode/test_real_idle_gpus.py",
        "tests/e2e/realnode/test_real_shares.py",
    }
)

LONGEST = (
    KILL_MATRIX,
    REAL_CHART,
    REAL_GANGS,
    "tests/e2e/virtualnode/test_vm_zones.py",
    "tests/e2e/test_chaos.py",
    HISTORIES,
    "tests/e2e/test_docs_commands.py",
    "tests/e2e/test_whatif.py",
    DEMO,
    "tests/e2e/test_namespace_ends.py",
    "tests/e2e/test_pods.py",
    "tests/hami/test_binder_plugin.py",
    "tests/nodeagent/test_nodes.py",
    "tests/binder/test_volumes.py",
    "tests/benchmarks/test_binder_alone.py",
    "tests/browser/test_pages.py",
    "tests/benchmarks/test_races.py",
    "tests/hami/test_end_to_end.py",
    "tests/e2e/test_binder_crash.py",
    "tests/binder/test_interrupted.py",
    "tests/e2e/test_scheduler_crash.py",
    "tests/e2e/test_evictions.py",
    "tests/e2e/test_two_schedulers.py",
    "tests/e2e/upstream/test_upstream.py",
    "tests/e2e/upstream/test_upstream_next.py",
    "tests/binder/test_extras.py",
    "tests/e2e/test_bad_input.py",
    "tests/scenario/test_scenarios.py",
    "tests/e2e/test_between_plan_and_bind.py",
    "tests/kube/test_watch.py",
    "tests/e2e/test_grouper.py",
    "tests/e2e/test_webhook.py",
    "tests/e2e/test_gpu_reservations.py",
    "tests/e2e/test_grouper_crash.py",
    "tests/e2e/test_usage.py",
    "tests/binder/test_shares.py",
    "tests/binder/test_binds.py",
    "tests/cli/test_live.py",
    "tests/binder/test_under_fire.py",
    "tests/e2e/test_shared_requests.py",
    "tests/e2e/test_older_definitions.py",
    "tests/e2e/test_job_survives_reclaim.py",
    "tests/e2e/test_run_time.py",
    "tests/e2e/test_operators.py",
    "tests/nodeagent/test_killed_agent.py",
    "tests/hami/test_left_locks.py",
    "tests/cli/test_asking.py",
    "tests/scheduler/actions/test_make_room_properties.py",
    "tests/scenario/test_snapshot.py",
)
"""The files that take longest, which comes first. Others may come in any order."""
_FEWEST_WITH_A_COMPUTER = 3


class Spread(LoadScopeScheduling):
    """Gives each worker one file after the other, or one test of a file of `APART`."""

    def _split_scope(self, nodeid: str) -> str:
        file = file_of(nodeid)
        if file in TOGETHER:
            return REAL_GANGS
        return nodeid if file in APART else file

    def _assign_work_unit(self, node: WorkerController) -> None:
        wants_plane = not self._only_computes(node)
        fitting = (s for s in self.workqueue if self._needs_control_plane(s) == wants_plane)
        first = next(fitting, None)
        if first is not None:
            self.workqueue.move_to_end(first, last=False)
        super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        is_fit = not self._only_computes(node) or not all(
            self._needs_control_plane(scope) for scope in self.workqueue
        )
        if is_fit or node.shutting_down:
            super()._reschedule(node)
        else:
            node.shutdown()  # after the tests that it has; it never starts a control plane

    def _only_computes(self, node: WorkerController) -> bool:
        """Return whether `node` is the worker for files without a control plane."""
        is_last = str(node.gateway.id) == f"gw{self.numnodes - 1}"
        return is_last and self.numnodes >= _FEWEST_WITH_A_COMPUTER and self._has_both

    @cached_property
    def _has_both(self) -> bool:
        return len({self._needs_control_plane(nodeid) for nodeid in self.collection or ()}) > 1

    def _needs_control_plane(self, nodeid: str) -> bool:
        file = file_of(nodeid)
        if file not in self._e2e_files:
            text = Path(self.config.rootpath, file).read_text(encoding="utf-8")
            self._e2e_files[file] = "mark.e2e" in text
        return self._e2e_files[file]

    @cached_property
    def _e2e_files(self) -> dict[str, bool]:
        return {}


def spread(config: pytest.Config, log: Producer) -> Spread:
    """Return the scheduler of a run; it keeps the order in which the tests were collected."""
    config.option.loadscopereorder = False
    return Spread(config, log)


def longest_first(items: list[pytest.Item]) -> None:
    """Sort `items` in place; tests of one file keep their order."""
    places = {file: place for place, file in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(file_of(item.nodeid), len(places)))


def file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]
