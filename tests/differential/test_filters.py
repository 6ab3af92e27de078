"""The feasible nodes of a pod equal the result of kube-scheduler's own filters.

Random clusters over affinity, spreading, host ports, taints and room; some running pods belong to
other schedulers, and some pods are nominated for a node. One pod is placed on the same state.

Bindery differs by intent in these rules, so the clusters leave them out:
- readiness: kube-scheduler reads only the taints of a node that is not ready;
- nominated pods: kube-scheduler counts their anti-affinity only for pods with such rules of their
  own, Bindery for all pods;
- spread constraints whose selector selects everything count no pods: kube-scheduler counts
  nominated pods;
- node pools: topology spread constraints count nodes of the pool only.
"""

import itertools
from collections.abc import Sequence

import pytest

from tests.differential.feasible import feasible_nodes
from tests.randomclusters import RandomCluster, engine_for, feasible_places
from tests.sizes import IS_LONG

pytestmark = pytest.mark.e2e  # needs the Go modules of the control plane

CLUSTERS = 2000 if IS_LONG else 100
BATCH = 50


@pytest.mark.parametrize("batch", range(CLUSTERS // BATCH))
def test_the_feasible_nodes_equal_the_feasible_nodes_of_kube_scheduler(batch: int) -> None:
    seeds = range(batch * BATCH, (batch + 1) * BATCH)
    clusters = [RandomCluster(seed) for seed in seeds]

    theirs = feasible_nodes([cluster.question for cluster in clusters])

    differences = {
        seed: (sorted(ours - others), sorted(others - ours))
        for seed, cluster, others in zip(seeds, clusters, theirs, strict=True)
        if (ours := feasible_places(engine_for(cluster), cluster.pod["metadata"]["uid"])) != others
    }
    assert differences == {}, "seed: (only ours, only theirs)"


def test_the_random_clusters_exercise_the_filters() -> None:
    clusters = [RandomCluster(seed) for seed in range(BATCH)]

    theirs = feasible_nodes([cluster.question for cluster in clusters])

    shares = [len(nodes) / len(c.nodes) for nodes, c in zip(theirs, clusters, strict=True)]
    assert sum(0 < share < 1 for share in shares) > BATCH / 4
    assert _different(theirs) > BATCH / 4


def _different(answers: Sequence[set[str]]) -> int:
    return sum(one != other for one, other in itertools.pairwise(answers))
