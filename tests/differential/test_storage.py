"""Volumes, disks, claimed devices and declared features: feasible nodes as in kube-scheduler.

Random clusters (`randomstorage`), asked as in `test_filters`.
"""

import itertools

import pytest

from bindery.scheduler.engine import Engine
from bindery.scheduler.ledgers.base import LedgerRefusalError
from bindery.scheduler.model.jobs import Uid
from tests.differential.feasible import feasible_nodes
from tests.differential.randomstorage import RandomStorage
from tests.sizes import IS_LONG

pytestmark = pytest.mark.e2e  # needs the Go modules of the control plane

CLUSTERS = 2000 if IS_LONG else 200
BATCH = 100


def feasible_places(engine: Engine, uid: str) -> set[str]:
    """Return the nodes on which Bindery would place the pod `uid` now.

    A ledger may refuse a node that the filters let through: several claims of a pod may want the
    only volume there.
    """
    found: set[str] = set()
    with engine.session() as session:
        task = session.state.tasks[Uid(uid)]
        if session.calls.task_refusal(task) is not None:
            return set()
        finder = session.placement.finder(session.state.jobs[task.job])
        while (place := finder.best(task)) is not None and place.fits_now:
            try:
                with session.statement() as statement:
                    statement.allocate(task, place.row)
                found.add(session.state.nodes.name(place.row))
            except LedgerRefusalError:
                pass
            finder.exclude(task, place.row, "it was tried")
    return found


@pytest.mark.parametrize("batch", range(CLUSTERS // BATCH))
def test_the_feasible_nodes_equal_the_feasible_nodes_of_kube_scheduler(batch: int) -> None:
    seeds = range(batch * BATCH, (batch + 1) * BATCH)
    clusters = [RandomStorage(seed) for seed in seeds]

    theirs = feasible_nodes([each.question for each in clusters])

    differences = {
        seed: (sorted(ours - others), sorted(others - ours))
        for seed, each, others in zip(seeds, clusters, theirs, strict=True)
        if (ours := feasible_places(each.engine(), each.cluster.pod["metadata"]["uid"])) != others
    }
    assert differences == {}, "seed: (only ours, only theirs)"


def test_the_random_clusters_exercise_volumes_devices_and_features() -> None:
    clusters = [RandomStorage(seed) for seed in range(BATCH)]
    plain = [{**each.question, "pod": _without_storage(each)} for each in clusters]

    theirs = feasible_nodes([*(each.question for each in clusters), *plain])

    with_storage, without = theirs[:BATCH], theirs[BATCH:]
    narrowed = [few < many for few, many in zip(with_storage, without, strict=True)]
    assert sum(narrowed) > BATCH / 4
    assert sum(map(bool, with_storage)) > BATCH / 4
    kinds = {kind for each in clusters for kind in _asked(each)}
    assert {"persistentVolumeClaim", "rbd", "resourceClaims", "restartPolicyRules"} <= kinds


def _without_storage(each: RandomStorage) -> dict[str, object]:
    pod = each.cluster.pod
    spec = {key: value for key, value in pod["spec"].items() if key not in STORAGE_KEYS}
    spec["containers"] = [
        {key: value for key, value in one.items() if key != "restartPolicyRules"}
        for one in spec["containers"]
    ]
    return {**pod, "spec": spec}


STORAGE_KEYS = ("volumes", "resourceClaims", "hostNetwork", "hostUsers")


def _asked(each: RandomStorage) -> itertools.chain[str]:
    spec = each.cluster.pod["spec"]
    return itertools.chain(spec, spec["containers"][0], *spec.get("volumes", ()))
