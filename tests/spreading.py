"""How `pytest --numprocesses` spreads the tests over its workers.

A file stays together, because its tests share components and the control plane of their worker.
Files of `APART` do not: each of their tests is long and has all its components to itself. What
takes longest begins first, so that no worker is left with it at the end.
"""

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

KILL_MATRIX = "tests/e2e/test_e2e_kill_matrix.py"
DEMO = "tests/controlplane/test_demo.py"
APART = frozenset({KILL_MATRIX, DEMO})

LONGEST = (
    KILL_MATRIX,
    "tests/e2e/test_e2e_chaos.py",
    DEMO,
    "tests/hami/test_hami_node_lock.py",
    "tests/nodeagent/test_hollow_nodes.py",
    "tests/binder/test_binder_volumes.py",
    "tests/benchmarks/test_binder_alone.py",
    "tests/benchmarks/test_races.py",
    "tests/hami/test_hami_end_to_end.py",
    "tests/e2e/test_e2e_binder_crash.py",
    "tests/binder/test_binder_interrupted.py",
    "tests/e2e/test_e2e_scheduler_crash.py",
    "tests/e2e/test_e2e_evictions.py",
    "tests/e2e/test_e2e_two_schedulers.py",
    "tests/e2e/upstream/test_e2e_upstream.py",
    "tests/e2e/upstream/test_e2e_upstream_next.py",
    "tests/binder/test_binder_extras.py",
    "tests/scenario/test_scenarios.py",
    "tests/e2e/test_e2e_between_plan_and_bind.py",
    "tests/kube/test_kube_watch.py",
    "tests/e2e/test_e2e_webhook.py",
    "tests/e2e/test_e2e_gpu_reservations.py",
    "tests/e2e/test_e2e_grouper_crash.py",
    "tests/e2e/test_e2e_usage.py",
    "tests/binder/test_binder_shares.py",
    "tests/binder/test_binder_binds.py",
    "tests/cli/test_live.py",
    "tests/binder/test_binder_under_fire.py",
    "tests/e2e/test_e2e_shared_requests.py",
    "tests/cli/test_asking.py",
    "tests/scheduler/test_make_room_properties.py",
    "tests/scenario/test_capture.py",
)
"""The files that take longest, which comes first. Others may come in any order."""


class Spread(LoadScopeScheduling):
    """Gives each worker one file after the other, or one test of a file of `APART`."""

    def _split_scope(self, nodeid: str) -> str:
        file = file_of(nodeid)
        return nodeid if file in APART else file


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
