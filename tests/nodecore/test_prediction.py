"""The predictor: counts against the managers themselves, and arrays against the plain function."""

from collections import Counter
from random import Random

import numpy as np
import pytest

from bindery.nodecore.prediction import plain, vectors
from bindery.nodecore.prediction.arrays import stack
from bindery.nodecore.prediction.requests import request_of
from tests.nodecore.zoneworlds import random_pod, random_world, random_zones
from tests.sizes import IS_LONG

WORLDS = 2500 if IS_LONG else 80
PARTS = 4
STEPS = 6

BATCHES = 250 if IS_LONG else 20
NODES = 40


@pytest.mark.parametrize("part", range(PARTS))
def test_the_prediction_from_counts_equals_the_decision_of_the_managers(part: int) -> None:
    admitted = refused = 0
    for seed in range(part, WORLDS, PARTS):
        random = Random(seed)
        world = random_world(random)
        for step in range(STEPS):
            if world.node.pods and random.random() < 0.3:
                world.node.pods.remove(random.choice(world.node.pods))
            asking = random_pod(random, f"pod-{step}", world.threads)
            before = world.counts()

            predicted = plain.predict(before, request_of(asking))
            is_admitted = world.admit(asking)

            case = (seed, step, before, asking)
            assert predicted.admit == is_admitted, case
            if is_admitted:
                assert predicted.zones == world.zones_of(asking), case
                if not asking.init_containers:  # what init containers had may lie anywhere
                    assert predicted.after.free == world.counts().free, case
            admitted += is_admitted
            refused += not is_admitted
    assert admitted > WORLDS // PARTS
    assert refused > WORLDS // PARTS


def test_predictions_for_many_nodes_equal_predictions_for_single_nodes() -> None:
    kinds: Counter[tuple[str, bool, bool]] = Counter()
    for seed in range(BATCHES):
        random = Random(seed)
        nodes = [random_zones(random) for _ in range(NODES)]
        request = request_of(random_pod(random, "pod", random.choice((1, 2))))

        found = vectors.predict(stack(nodes), request)

        for row, node in enumerate(nodes):
            alone = plain.predict(node, request)
            answer = (bool(found.admit[row]), int(found.zones[row]), bool(found.preferred[row]))
            expected = (alone.admit, alone.zones, alone.preferred)
            assert answer == expected, (seed, row, node, request)
            kinds[node.policy, alone.admit, alone.preferred] += 1
    assert len(kinds) >= 9  # each policy admits and refuses, with and without preference


def test_a_row_of_the_arrays_predicts_as_its_node() -> None:
    random = Random(1)
    nodes = [random_zones(random) for _ in range(NODES)]
    arrays = stack(nodes)
    for row, node in enumerate(nodes):
        request = request_of(random_pod(random, "pod"))
        predicted = plain.predict(node, request)
        assert plain.predict(arrays.node(row), request).zones == predicted.zones
        arrays.write(row, predicted.after)
        again = plain.predict(predicted.after, request)
        assert vectors.predict(arrays, request, np.array([row])).admit.tolist() == [again.admit]
