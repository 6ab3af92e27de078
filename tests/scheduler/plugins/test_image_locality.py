"""Image locality: the formula of kube-scheduler, and changes of the images of nodes."""

import msgspec
import pytest

from bindery.api.configuration import PluginConfiguration, SchedulerConfiguration
from bindery.kube.objects import podspec
from bindery.kube.objects import watched as kube
from bindery.kube.objects.selectors import LabelSelector
from bindery.scheduler.engine import Engine
from bindery.scheduler.model.images import ImageTable, UsedImages, normalized, used_images
from tests.scheduler.schedulerworld import (
    Clock,
    add,
    configuration,
    delete,
    modify,
    node,
    plan,
    pod,
)

MIB = 1024**2


def image(size_mib: int, *names: str) -> kube.ContainerImage:
    return kube.ContainerImage(names=names, size_bytes=size_mib * MIB)


def with_images(item: kube.Node, *images: kube.ContainerImage) -> kube.Node:
    status = msgspec.structs.replace(item.status, images=list(images))
    return msgspec.structs.replace(item, status=status)


def using(name: str, *images: str, gpu: int = 1) -> kube.Pod:
    item = pod(name, gpu=gpu)
    first = msgspec.structs.replace(item.spec.containers[0], image=images[0])
    others = [podspec.Container(name=f"c{i}", image=each) for i, each in enumerate(images[1:])]
    spec = msgspec.structs.replace(item.spec, containers=[first, *others])
    return msgspec.structs.replace(item, spec=spec)


def percents(used: UsedImages, *nodes: list[kube.ContainerImage]) -> list[int]:
    table = ImageTable()
    for row, images in enumerate(nodes):
        table.put(row, images)
    return [int(each) for each in table.percent(used, len(nodes), len(nodes))]


# By hand: with s, the sum of size * share of nodes in MiB, and c containers,
# 100 * (s - 23) / (1000 * c - 23), rounded down.
@pytest.mark.parametrize(
    ("used", "nodes", "expected"),
    [
        (UsedImages(("a:1",), 1), [[image(40, "a:1")], []], [0, 0]),
        (UsedImages(("a:1",), 1), [[image(250, "a:1")], []], [10, 0]),
        (UsedImages(("a:1", "b:1"), 2), [[image(40, "a:1"), image(300, "b:1")], []], [7, 0]),
        (UsedImages(("a:1",), 1), [[image(4000, "a:1")], [image(10, "x:1")]], [100, 0]),
        (UsedImages(("a:1",), 2), [[image(4000, "a:1")], []], [100, 0]),
        (UsedImages(("a:1",), 1), [[image(2000, "a:1")], [], [], []], [48, 0, 0, 0]),
        (UsedImages(("a:1", "a:1"), 2), [[image(1000, "a:1")], []], [49, 0]),
        (UsedImages(("b:2",), 1), [[image(900, "a:1", "b:2")], []], [43, 0]),
    ],
)
def test_the_score_of_an_image_follows_its_size_and_its_share_of_nodes(
    used: UsedImages, nodes: list[list[kube.ContainerImage]], expected: list[int]
) -> None:
    assert percents(used, *nodes) == expected


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("root", "root:latest"),
        ("root:tag", "root:tag"),
        ("gcr.io:5000/root", "gcr.io:5000/root:latest"),
        ("root@sha256:aaaa", "root@sha256:aaaa"),
    ],
)
def test_a_name_without_tag_has_the_tag_latest(name: str, full: str) -> None:
    assert normalized(name) == full


def test_images_of_all_containers_and_of_volumes_count() -> None:
    volume = podspec.Volume(name="m", image=podspec.ImageVolume(reference="model:v1"))
    spec = podspec.PodSpec(
        containers=[podspec.Container(image="a"), podspec.Container(image="unknown")],
        init_containers=[podspec.Container(image="a:latest")],
        volumes=[volume],
    )

    used = used_images(spec, {"a:latest": 1, "model:v1": 1})

    assert used == UsedImages(("a:latest", "a:latest", "model:v1"), 3)


def test_the_table_follows_the_nodes() -> None:
    table = ImageTable()
    assert table.put(0, [image(900, "a:1")]) == ["a:1"]
    assert table.put(1, [image(900, "a:1", "a:2")]) == ["a:2"]
    used = UsedImages(("a:1",), 1)
    assert table.percent(used, 2, 2).tolist() == [89, 89]

    assert table.put(0, []) == []
    assert table.percent(used, 2, 2).tolist() == [0, 43]

    table.put(1, [])
    assert not table.names


def test_images_decide_between_equal_nodes_and_with_a_weight_before_packing() -> None:
    large = image(8000, "train:v1")
    items = [node("a", gpu=8), with_images(node("b", gpu=8), large), pod("old", gpu=4, on="a")]

    def placed(weight: float) -> dict[str, str]:
        plugins = [
            PluginConfiguration(name=plugin.name, weight=weight)
            if plugin.name == "imagelocality"
            else plugin
            for plugin in SchedulerConfiguration().plugins
        ]
        engine = Engine(configuration(plugins), Clock())
        add(engine.cluster, *items, using("new", "train:v1"))
        return plan(engine)

    assert placed(1) == {"new": "a"}
    assert placed(100) == {"new": "b"}
    assert placed(0) == {"new": "a"}


def test_pods_with_images_on_no_node_share_their_shape() -> None:
    engine = Engine(configuration(), Clock())
    first, second = using("first", "one:v1"), using("second", "two:v1")
    add(engine.cluster, node("a", gpu=8), first, second)
    tasks = engine.cluster.state.tasks

    def shapes() -> list[object]:
        return [tasks[key].shape for key in sorted(tasks)]

    assert shapes()[0] is shapes()[1]

    modify(engine.cluster, with_images(node("a", gpu=8), image(900, "one:v1")))
    assert shapes()[0] is not shapes()[1]


def test_images_of_a_pod_that_changes_its_shape_are_counted_once() -> None:
    engine = Engine(configuration(), Clock())
    item = using("p", "one:v1")
    affinity = podspec.Affinity(
        pod_anti_affinity=podspec.PodAffinity(
            required=[
                podspec.PodAffinityTerm(
                    topology_key="zone",
                    label_selector=LabelSelector(match_labels={"app": "x"}),
                )
            ]
        )
    )
    labelled = pod("labelled", labels={"app": "x"})
    add(engine.cluster, node("a", gpu=8), item, labelled)

    modify(engine.cluster, with_images(node("a", gpu=8), image(900, "one:v1")))
    keeper = pod("keeper", affinity=affinity)
    add(engine.cluster, keeper)
    for each in (item, labelled, keeper):
        delete(engine.cluster, each)

    assert engine.cluster.state.pod_counts.by_day == {}
