"""The requests for devices that serve extended resources, as kube-scheduler makes them."""

import pytest

from bindery.kube.objects.devices import DeviceClass, DeviceClassSpec
from bindery.kube.objects.podspec import Container, ResourceRequirements
from bindery.kube.objects.watched import Meta
from bindery.scheduler.plugins.dra.extended import asked, served_resources

CARD = "example.com/card"
CLASSES = {CARD: "cards"}


def container(name: str, cards: int = 0, *, sidecar: bool = False, **more: str) -> Container:
    requests = {**({CARD: str(cards)} if cards else {}), **more}
    return Container(
        name=name,
        resources=ResourceRequirements(requests=requests),
        restart_policy="Always" if sidecar else None,
    )


@pytest.mark.parametrize(
    ("init_containers", "containers", "requests", "mappings"),
    [
        pytest.param(
            [],
            [container("a", 2)],
            [("container-0-request-0", 2)],
            [("a", "container-0-request-0")],
            id="one container",
        ),
        pytest.param(
            [],
            [container("a", 1, cpu="1", memory="1Gi"), container("b"), container("c", 3)],
            [("container-0-request-1", 1), ("container-2-request-0", 3)],
            [("a", "container-0-request-1"), ("c", "container-2-request-0")],
            id="the position among the container's requests, by name",
        ),
        pytest.param(
            [container("i", 2)],
            [container("a", 2)],
            [("container-1-request-0", 2)],
            [("a", "container-1-request-0"), ("i", "container-1-request-0")],
            id="an init container uses the devices of later containers",
        ),
        pytest.param(
            [container("i", 3)],
            [container("a", 1)],
            [("container-0-request-0", 2), ("container-1-request-0", 1)],
            [
                ("a", "container-1-request-0"),
                ("i", "container-1-request-0"),
                ("i", "container-0-request-0"),
            ],
            id="an init container requests the remaining devices",
        ),
        pytest.param(
            [container("i", 2), container("j", 4)],
            [container("a")],
            [("container-1-request-0", 4)],
            [("i", "container-1-request-0"), ("j", "container-1-request-0")],
            id="init containers share the largest request",
        ),
        pytest.param(
            [container("s", 1, sidecar=True), container("i", 2)],
            [container("a", 1)],
            [
                ("container-0-request-0", 1),
                ("container-1-request-0", 1),
                ("container-2-request-0", 1),
            ],
            [
                ("s", "container-0-request-0"),
                ("a", "container-2-request-0"),
                ("i", "container-2-request-0"),
                ("i", "container-1-request-0"),
            ],
            id="an init container cannot use the devices of a sidecar that started before",
        ),
    ],
)
def test_containers_are_translated_to_requests(
    init_containers: list[Container],
    containers: list[Container],
    requests: list[tuple[str, int]],
    mappings: list[tuple[str, str]],
) -> None:
    found = asked(init_containers, containers, CLASSES)

    made = [(each.name, each.exactly.count) for each in found.requests if each.exactly is not None]
    assert made == requests
    assert [(each.container_name, each.request_name) for each in found.mappings] == mappings


def a_class(name: str, resource: str | None = None, created: str = "") -> DeviceClass:
    return DeviceClass(
        metadata=Meta(name=name, creation_timestamp=created or None),
        spec=DeviceClassSpec(extended_resource_name=resource),
    )


@pytest.mark.parametrize(
    ("classes", "server"),
    [
        ([a_class("b", CARD), a_class("a", CARD)], "a"),
        (
            [
                a_class("a", CARD, "2026-01-01T00:00:00Z"),
                a_class("b", CARD, "2026-02-01T00:00:00Z"),
            ],
            "b",
        ),
    ],
)
def test_a_resource_is_served_by_the_newest_class_and_then_by_name(
    classes: list[DeviceClass], server: str
) -> None:
    assert served_resources(classes)[CARD] == server
    assert served_resources(reversed(classes))[CARD] == server


def test_a_class_serves_the_resource_with_its_own_name() -> None:
    assert served_resources([a_class("a")]) == {"deviceclass.resource.kubernetes.io/a": "a"}
