"""The devices of a node as HAMi's annotations."""

import json

import pytest

from bindery.api.hami import nodedevices
from bindery.api.hami.names import NVIDIA_PAIR_SCORES
from bindery.api.hami.vendortable import NVIDIA
from bindery.nodeagent.devices import hamiregister
from bindery.nodeagent.devices.hamiregister import Sharing
from bindery.nodeagent.devices.inventory import (
    Distance,
    GpuLink,
    MigKind,
    MigRange,
    MigSlice,
    NodeGpu,
)

V100 = NodeGpu(
    uuid="GPU-0055", index=1, model="Tesla V100-PCIE-32GB", memory_mib=32768, numa_node=0
)
MIG = NodeGpu(
    uuid="GPU-m",
    index=2,
    model="NVIDIA A100",
    memory_mib=40960,
    is_mig=True,
    problem="Xid 79",
    mig_kinds=(
        MigKind(name="1g.5gb", memory_mib=4864, slices=1, placements=(MigRange(start=0, size=1),)),
    ),
    mig_slices=(
        MigSlice(
            uuid="MIG-1", profile="1g.5gb+me", memory_mib=4864, placement=MigRange(start=4, size=1)
        ),
    ),
)


def test_the_register_is_that_of_hamis_own_plugin_byte_for_byte() -> None:
    written = hamiregister.annotations((V100,), Sharing())

    assert written[NVIDIA.register_key] == (
        '[{"id":"GPU-0055","index":1,"count":10,"devmem":32768,"devcore":100,'
        '"type":"NVIDIA-Tesla V100-PCIE-32GB","mode":"hami-core","health":true}]'
    )


def test_scaled_memory_is_promised_and_an_unhealthy_gpu_is_registered_as_such() -> None:
    written = hamiregister.annotations((V100, MIG), Sharing(4, 1.5))

    card, mig = nodedevices.decode(written[NVIDIA.register_key])
    assert (card.count, card.memory_mib, card.healthy) == (4, 49152, True)
    assert (mig.mode, mig.healthy, mig.type) == ("mig", False, "NVIDIA A100")
    assert mig.mig_profiles[0].name == "1g.5gb"


@pytest.mark.parametrize(
    ("distance", "nvlinks", "score"),
    [
        (Distance.SYSTEM, 0, 10),
        (Distance.NODE, 0, 20),
        (Distance.HOST_BRIDGE, 0, 30),
        (Distance.MULTIPLE, 0, 40),
        (Distance.SINGLE, 0, 50),
        (Distance.INTERNAL, 0, 60),
        (Distance.SYSTEM, 12, 1210),
    ],
)
def test_a_pair_scores_by_its_distance_and_its_links(
    distance: Distance, nvlinks: int, score: int
) -> None:
    gpus = [
        NodeGpu(uuid=own, links=(GpuLink(uuid=other, distance=distance, nvlinks=nvlinks),))
        for own, other in (("GPU-a", "GPU-b"), ("GPU-b", "GPU-a"))
    ]

    text = hamiregister.annotations(gpus, Sharing())[NVIDIA_PAIR_SCORES]

    assert json.loads(text) == [
        {"uuid": "GPU-a", "score": {"GPU-b": score}},
        {"uuid": "GPU-b", "score": {"GPU-a": score}},
    ]
    assert nodedevices.decode_pair_scores(text)["GPU-a"] == {"GPU-b": score}


def test_a_pair_whose_sides_differ_scores_nothing() -> None:
    first = NodeGpu(uuid="GPU-a", links=(GpuLink(uuid="GPU-b", distance=Distance.SINGLE),))
    second = NodeGpu(uuid="GPU-b", links=(GpuLink(uuid="GPU-a", distance=Distance.SYSTEM),))

    assert hamiregister.pair_scores((first, second)) == {
        "GPU-a": {"GPU-b": 0},
        "GPU-b": {"GPU-a": 0},
    }
    assert hamiregister.pair_scores((first, NodeGpu(uuid="GPU-b")))["GPU-b"] == {"GPU-a": 0}
