"""An unreadable object keeps the resources it holds, from the watch to the plan."""

from typing import Any

import msgspec
import pytest

from bindery.kube.objects import watched as kube
from bindery.kube.objects.claims import RESOURCE_CLAIMS
from bindery.kube.objects.devices import DEVICE_CLASSES, RESOURCE_SLICES
from bindery.kube.objects.podspec import PodResourceClaim
from bindery.kube.objects.resources import NODES, PODS, Resource
from bindery.kube.objects.storage import CLAIMS, VOLUMES
from bindery.kube.watches.decoding import LenientDecoder
from bindery.kube.watches.store import Store
from bindery.scheduler.engine import Engine
from tests.scheduler.schedulerworld import NAMESPACE, engine_with, node, plan, pod, report_of
from tests.scheduler.volumeworld import bound_claim, claim, promised_to, storage_class, user, volume

DRIVER = "d.example.com"
MALFORMED = [7]
"""Fits no field."""


class Watch:
    """The watch of one kind, which feeds an engine."""

    def __init__(self, engine: Engine, resource: Resource[Any]) -> None:
        self._engine, self._decoder = engine, LenientDecoder(resource)
        self._store: Store[Any] = Store()
        self._version = 0

    def see(self, body: dict[str, Any]) -> None:
        """Deliver a new version of an object."""
        self._version += 1
        named = {"namespace": NAMESPACE, "uid": f"uid-{body['metadata']['name']}"}
        meta = {**named, **body["metadata"], "resourceVersion": str(self._version)}
        event = {"type": "MODIFIED", "object": {**body, "metadata": meta}}
        _, found = self._decoder.event(msgspec.json.encode(event))
        for change in self._store.see(found):
            self._engine.cluster.apply(change)


def json_of(item: kube.KubeObject) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.to_builtins(item)
    body.pop("unreadable", None)
    return body


# ---- devices ------------------------------------------------------------------------------------


def with_one_device(*items: kube.KubeObject) -> Engine:
    engine = engine_with(node("n"), *items)
    Watch(engine, DEVICE_CLASSES).see({"metadata": {"name": "any", "namespace": ""}})
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": "n", "pool": pool, "devices": [{"name": "x"}]}
    Watch(engine, RESOURCE_SLICES).see({"metadata": {"name": "n", "namespace": ""}, "spec": spec})
    return engine


def asking(name: str) -> kube.Pod:
    return pod(name, resource_claims=[PodResourceClaim(name="c", resource_claim_name=name)])


def device_claim(name: str, **status: Any) -> dict[str, Any]:
    asked = {"requests": [{"name": "r", "exactly": {"deviceClassName": "any"}}]}
    return {"metadata": {"name": name}, "spec": {"devices": asked}, "status": status}


def allocated(**result: Any) -> dict[str, Any]:
    given = {"request": "r", "driver": DRIVER, "pool": "n", "device": "x", **result}
    return {"allocation": {"devices": {"results": [given]}}}


def report(**fields: Any) -> dict[str, Any]:
    return {"devices": [{"driver": DRIVER, "pool": "n", "device": "x", **fields}]}


@pytest.mark.parametrize("is_known", [True, False], ids=["read before", "never read"])
@pytest.mark.parametrize(
    "status",
    [
        pytest.param({**allocated(), **report(conditions=None)}, id="a report without conditions"),
        pytest.param({**allocated(), **report(conditions=MALFORMED)}, id="malformed conditions"),
        pytest.param({**allocated(), "reservedFor": MALFORMED}, id="malformed reservations"),
        pytest.param(allocated(tolerations=MALFORMED), id="a malformed toleration"),
        pytest.param(
            allocated(shareID="s", consumedCapacity=MALFORMED), id="a malformed amount of a share"
        ),
    ],
)
def test_the_device_of_a_claim_with_malformed_fields_is_not_allocated_twice(
    status: dict[str, Any], *, is_known: bool
) -> None:
    engine = with_one_device(asking("second"))
    claims = Watch(engine, RESOURCE_CLAIMS)
    claims.see(device_claim("second"))
    if is_known:
        claims.see(device_claim("first", **allocated()))
    claims.see(device_claim("first", **status))

    assert plan(engine) == {}
    assert "free devices" in report_of(engine, "second").message


def test_an_unreadable_allocation_keeps_its_last_devices() -> None:
    engine = with_one_device(asking("second"))
    claims = Watch(engine, RESOURCE_CLAIMS)
    claims.see(device_claim("second"))
    claims.see(device_claim("first", **allocated()))
    claims.see(device_claim("first", allocation=MALFORMED))

    assert plan(engine) == {}
    claims.see(device_claim("first"))
    assert plan(engine) == {"second": "n"}, "it is free again"


def test_a_pod_does_not_use_a_claim_that_was_always_malformed() -> None:
    engine = with_one_device(asking("first"))
    status = {**allocated(), "reservedFor": MALFORMED}
    Watch(engine, RESOURCE_CLAIMS).see(device_claim("first", **status))

    assert plan(engine) == {}
    assert "resource claim first cannot be read: " in report_of(engine, "first").message


def test_a_claim_without_requests_is_read() -> None:
    """Go writes the empty `spec.devices` with null for its requests."""
    engine = with_one_device(asking("first"))
    body = {**device_claim("first"), "spec": {"devices": {"requests": None}}}
    Watch(engine, RESOURCE_CLAIMS).see(body)

    assert plan(engine) == {"first": "n"}


# ---- room on nodes ------------------------------------------------------------------------------


@pytest.mark.parametrize("is_known", [True, False], ids=["read before", "never read"])
@pytest.mark.parametrize("part", ["tolerations", "affinity", "volumes", "schedulingGates"])
def test_the_room_of_a_bound_pod_with_malformed_fields_is_not_given_away(
    part: str, *, is_known: bool
) -> None:
    engine = engine_with(node("n", 4), pod("new", cpu=2))
    pods, body = Watch(engine, PODS), json_of(pod("held", cpu=3, on="n"))
    if is_known:
        pods.see(body)
    pods.see({**body, "spec": {**body["spec"], part: MALFORMED}})

    assert plan(engine) == {}
    assert "insufficient cpu" in report_of(engine, "new").message


def test_a_pod_that_was_always_malformed_is_not_planned() -> None:
    engine = engine_with(node("n", 4))
    body = json_of(pod("odd"))
    Watch(engine, PODS).see({**body, "spec": {**body["spec"], "affinity": MALFORMED}})

    assert plan(engine) == {}


def test_a_pod_that_is_malformed_when_it_is_bound_holds_its_room() -> None:
    engine = engine_with(node("n", 4), pod("new", cpu=2))
    pods, body = Watch(engine, PODS), json_of(pod("held", cpu=3, on="n"))
    pods.see(json_of(pod("held", cpu=3)))
    pods.see({**body, "spec": {**body["spec"], "tolerations": MALFORMED}})

    assert plan(engine) == {}


def test_a_node_with_an_image_without_names_is_used() -> None:
    engine = engine_with(pod("new"))
    body = json_of(node("n"))
    body["status"]["images"] = [{"names": None, "sizeBytes": 1}]
    Watch(engine, NODES).see(body)

    assert plan(engine) == {"new": "n"}


def test_a_node_that_becomes_malformed_keeps_its_other_fields() -> None:
    engine = engine_with(pod("new", cpu=8))
    nodes, body = Watch(engine, NODES), json_of(node("n", 8))
    nodes.see(body)
    nodes.see({**body, "status": {**body["status"], "images": MALFORMED}})

    assert plan(engine) == {"new": "n"}


# ---- volumes ------------------------------------------------------------------------------------


def test_pods_wait_for_volumes_and_claims_that_were_always_malformed() -> None:
    bodies: dict[Resource[Any], dict[str, Any]] = {
        VOLUMES: json_of(volume("v", on="n", claim_ref=promised_to("c"), phase="Bound")),
        CLAIMS: json_of(bound_claim("c", "v")),
    }
    for broken, said in ((VOLUMES, 'persistentvolume "v"'), (CLAIMS, 'persistentvolumeclaim "c"')):
        engine = engine_with(node("n"), storage_class("local"), user("p", "c"))
        for resource, body in bodies.items():
            odd = {**body, "spec": {**body["spec"], "accessModes": MALFORMED}}
            Watch(engine, resource).see(odd if resource is broken else body)

        assert plan(engine) == {}
        assert f"{said} cannot be read: " in report_of(engine, "p").message


def test_a_malformed_volume_that_is_bound_is_not_given_to_another_claim() -> None:
    engine = engine_with(node("n"), storage_class("local"), claim("c"), user("p", "c"))
    body = json_of(volume("v", on="n", claim_ref=promised_to("other", "uid-other"), phase="Bound"))
    volumes = Watch(engine, VOLUMES)
    volumes.see(body)
    volumes.see({**body, "spec": {**body["spec"], "claimRef": MALFORMED}})

    assert plan(engine) == {}


# ---- objects that the scheduler fails on --------------------------------------------------------


def failing_on(engine: Engine, resource: Resource[Any], name: str) -> None:
    """Let a plugin of the engine fail on the labels or annotations of one object."""

    def observe(change: Any) -> bool:
        meta = change.object.metadata
        if meta.name == name and (meta.labels or meta.annotations):
            raise RecursionError("deep")
        return False

    engine.cluster.observe([((resource,), observe)])


def test_a_bound_pod_that_always_failed_processing_holds_its_room() -> None:
    engine = engine_with(node("n", 4), pod("new", cpu=2))
    failing_on(engine, PODS, "odd")
    Watch(engine, PODS).see(json_of(pod("odd", cpu=3, on="n", labels={"a": "b"})))

    assert plan(engine) == {}
    assert "insufficient cpu" in report_of(engine, "new").message


def test_a_node_that_fails_processing_stays_as_it_was() -> None:
    engine = engine_with(pod("new"))
    failing_on(engine, NODES, "n")
    nodes = Watch(engine, NODES)
    nodes.see(json_of(node("n")))
    nodes.see(json_of(node("n", labels={"a": "b"})))

    assert plan(engine) == {"new": "n"}
