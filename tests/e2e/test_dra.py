"""Devices on the real API server: published as ResourceSlices, claimed by name or from templates.

The test plays the driver; kube-controller-manager makes claims from templates and frees them.
"""

from collections.abc import AsyncIterator, Sequence

import pytest

from bindery.api.configuration import PluginConfiguration
from bindery.kube.errors import InvalidError
from bindery.kube.objects.claims import FINALIZER, RESOURCE_CLAIMS, ResourceClaim, is_extended
from bindery.kube.objects.resources import BIND_REQUESTS, PODS, QUEUES
from devcluster.components import Component, Components
from tests.e2e.dracorner import Driver, gpus, named, refusal, request_by_hand, templated
from tests.e2e.support import Corner, Gang, binder_configuration, scheduler_configuration, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("scheduler", "binder")]


@pytest.fixture(scope="module")
def scheduler(module_components: Components, pool: str) -> Component:
    counted = scheduler_configuration(pool).model_copy(update={"gpu_device_classes": ("*",)})
    return module_components.start_scheduler(counted).wait_ready()


@pytest.fixture(scope="module")
def binder(module_components: Components) -> Component:
    plugin = PluginConfiguration(name="dra", arguments={"bindingTimeoutSeconds": 30})
    return module_components.start_binder(binder_configuration(plugin)).wait_ready()


@pytest.fixture
async def driver(corner: Corner) -> AsyncIterator[Driver]:
    driver = Driver(corner)
    await driver.make_class()
    yield driver
    await driver.clean()


CONDITIONS = {"bindingConditions": ["Attached"], "bindingFailureConditions": ["Broken"]}


async def claim_what_must_be_attached(corner: Corner, driver: Driver) -> tuple[str, Gang]:
    """Submit a gang that claims a device the driver must attach first; return node and gang."""
    (node,) = await corner.add_nodes("a", cpu="8")
    await driver.publish(node, gpus(1, **CONDITIONS))
    await driver.make_claim("fabric")
    gang = Gang("fabric", size=1, pod=named("fabric"))
    await corner.submit(gang)

    async def is_allocated() -> bool:
        return (await driver.claim("fabric")).status.allocation is not None

    await wait_for(is_allocated, "the claim is allocated")
    return node, gang


def devices_of(claims: Sequence[ResourceClaim]) -> list[tuple[str, str]]:
    return sorted(
        (result.pool, result.device)
        for claim in claims
        if claim.status.allocation is not None
        for result in claim.status.allocation.devices.results
    )


async def test_a_gang_gets_devices_from_a_template_and_the_next_pod_waits_for_a_free_one(
    corner: Corner, driver: Driver
) -> None:
    (node,) = await corner.add_nodes("a", cpu="8")
    await driver.publish(node, gpus(2))
    await driver.make_template("one")
    gang = Gang("pair", size=2, pod=templated("one"))
    await corner.submit(gang)
    await corner.wait_bound(gang)

    claims = await driver.claims()
    assert devices_of(claims) == [(node, "gpu-0"), (node, "gpu-1")]
    pods = {pod.metadata.uid for pod in await corner.pods(gang)}
    assert {user.uid for claim in claims for user in claim.status.reserved_for} == pods
    assert all(FINALIZER in claim.metadata.finalizers for claim in claims)

    late = Gang("late", size=1, pod=templated("one"))
    await corner.submit(late)
    condition = await corner.wait_condition(late, "False", "Unschedulable")
    assert "have too few free devices for its claims" in condition.message

    first = min(pod.metadata.name for pod in await corner.pods(gang))
    await corner.client.delete(PODS, first, corner.namespace, grace_period_s=0)
    await corner.wait_bound(late)


async def test_a_device_reported_without_conditions_is_not_allocated_twice(
    corner: Corner, driver: Driver
) -> None:
    """The API server then writes `conditions: null`."""
    (node,) = await corner.add_nodes("a", cpu="8")
    await driver.publish(node, gpus(1))
    gangs = [Gang(name, size=1, pod=named(name)) for name in ("first", "second")]
    for gang in gangs:
        await driver.make_claim(gang.name)
    await corner.submit(gangs[0])
    await corner.wait_bound(gangs[0])

    await driver.report("first", "gpu-0")
    await corner.submit(gangs[1])

    condition = await corner.wait_condition(gangs[1], "False", "Unschedulable")
    assert "have too few free devices for its claims" in condition.message
    assert devices_of(await driver.claims()) == [(node, "gpu-0")]


async def test_devices_of_claims_count_as_gpus_of_the_queue(corner: Corner, driver: Driver) -> None:
    (node,) = await corner.add_nodes("a", cpu="8")
    await driver.publish(node, gpus(3))
    await driver.make_template("one")
    await driver.make_claim("shared")
    queue = await corner.add_queue("limited", {"resources": {"gpu": {"quota": 2, "limit": 2}}})
    sharers = Gang("sharers", size=3, pod=named("shared"), queue=queue)
    single = Gang("single", size=1, pod=templated("one"), queue=queue)
    for gang in (sharers, single):
        await corner.submit(gang)
        await corner.wait_bound(gang)

    late = Gang("late", size=1, pod=templated("one"), queue=queue)
    await corner.submit(late)
    condition = await corner.wait_condition(late, "False", "OverLimit")
    assert f"queue {queue} holds 2 of its limit of 2 nvidia.com/gpu" in condition.message

    async def counted() -> bool:
        status = (await corner.client.get(QUEUES, queue)).status
        return (status.allocated.get("gpu"), status.pending.get("gpu")) == ("2", "1")

    await wait_for(counted, "the queue says what it holds")

    (pod,) = await corner.pods(single)
    await corner.client.delete(PODS, pod.metadata.name, corner.namespace, grace_period_s=0)
    await corner.wait_bound(late)


async def test_pods_share_a_named_claim_on_the_node_of_its_device(
    corner: Corner, driver: Driver
) -> None:
    nodes = await corner.add_nodes("a", "b", cpu="8")
    for node in nodes:
        await driver.publish(node, gpus(1))
    await driver.make_claim("shared")
    gang = Gang("sharers", size=3, pod=named("shared"))
    await corner.submit(gang)
    await corner.wait_bound(gang)

    claim = await driver.claim("shared")
    assert len(claim.status.reserved_for) == 3
    ((pool, _),) = devices_of([claim])
    assert {pod.spec.node_name for pod in await corner.pods(gang)} == {pool}


async def test_a_pod_is_bound_after_the_driver_reports_its_device_ready(
    corner: Corner, driver: Driver
) -> None:
    _, gang = await claim_what_must_be_attached(corner, driver)
    assert await corner.bound_count(gang) == 0
    await driver.report("fabric", "gpu-0", "Attached")
    await corner.wait_bound(gang)


async def test_a_gang_is_not_bound_to_a_device_withdrawn_during_preparation(
    corner: Corner, driver: Driver
) -> None:
    node, gang = await claim_what_must_be_attached(corner, driver)

    async def is_free() -> bool:
        return (await driver.claim("fabric")).status.allocation is None

    await driver.withdraw(node)
    await driver.report("fabric", "gpu-0", "Attached")
    await wait_for(is_free, "the claim is given back")
    assert await corner.bound_count(gang) == 0


async def test_a_device_that_fails_to_attach_is_released(corner: Corner, driver: Driver) -> None:
    _, gang = await claim_what_must_be_attached(corner, driver)
    await driver.report("fabric", "gpu-0", "Broken")

    async def given_back() -> bool:
        claim = await driver.claim("fabric")
        return claim.status.allocation is None and FINALIZER not in claim.metadata.finalizers

    await wait_for(given_back, "the claim is deallocated")
    assert (await driver.claim("fabric")).status.reserved_for == []
    assert await corner.bound_count(gang) == 0


async def test_a_pod_waits_for_a_claim_that_exists_only_in_another_namespace(
    corner: Corner, driver: Driver
) -> None:
    (node,) = await corner.add_nodes("a", cpu="8")
    await driver.publish(node, gpus(1))
    claim = f"foreign-{corner.namespace}"
    await driver.make_claim(claim, "default")
    try:
        gang = Gang("stray", size=1, pod=named(claim))
        await corner.submit(gang)
        condition = await corner.wait_condition(gang, "False", "ResourceClaimNotReady")
        assert f"resource claim {claim} does not exist" in condition.message
        await driver.make_claim(claim)
        await corner.wait_bound(gang)
    finally:
        await corner.client.delete(RESOURCE_CLAIMS, claim, "default")


async def test_a_bind_request_deleted_while_its_devices_attach_leaves_nothing(
    corner: Corner, driver: Driver
) -> None:
    (node,) = await corner.add_nodes("a", cpu="8")
    await driver.publish(node, gpus(1, **CONDITIONS))
    await driver.make_claim("fabric")
    claim = await driver.claim("fabric")
    gang = Gang("gated", size=1, pod={"schedulingGates": [{"name": "test/held"}]})
    await corner.submit(gang)
    (pod,) = await corner.pods(gang)
    result = {
        "request": "gpu",
        "driver": driver.name,
        "pool": node,
        "device": "gpu-0",
        **CONDITIONS,
    }
    planned = {
        "name": "fabric",
        "uid": claim.metadata.uid,
        "allocation": {"devices": {"results": [result]}},
    }
    binding = {
        "podName": pod.metadata.name,
        "podUID": pod.metadata.uid,
        "selectedNode": node,
        "pluginData": {"dra": {"claims": [planned]}},
    }
    await request_by_hand(corner, "by-hand", binding)

    async def reserved() -> bool:
        return bool((await driver.claim("fabric")).status.reserved_for)

    await wait_for(reserved, "the claim is reserved")
    await corner.client.delete(BIND_REQUESTS, "by-hand", corner.namespace)

    async def as_it_was() -> bool:
        found = await driver.claim("fabric")
        is_free = found.status.allocation is None and not found.status.reserved_for
        return is_free and FINALIZER not in found.metadata.finalizers

    await wait_for(as_it_was, "the claim is as it was")


async def test_the_binder_refuses_a_claim_that_was_created_for_another_pod(
    corner: Corner, driver: Driver
) -> None:
    """A BindRequest with `isOwn` must name a claim that was created for the pod."""
    (node,) = await corner.add_nodes("a", cpu="8")
    await driver.publish(node, gpus(1))  # so that nothing but the claim is wrong
    await driver.make_claim("other")
    claim = await driver.claim("other")
    gang = Gang("gated", size=1, pod={"schedulingGates": [{"name": "test/held"}]})
    await corner.submit(gang)
    (pod,) = await corner.pods(gang)
    result = {"request": "gpu", "driver": driver.name, "pool": node, "device": "gpu-0"}
    planned = {
        "name": "other",
        "uid": claim.metadata.uid,
        "isOwn": True,
        "allocation": {"devices": {"results": [result]}},
    }
    binding = {
        "podName": pod.metadata.name,
        "podUID": pod.metadata.uid,
        "selectedNode": node,
        "pluginData": {"dra": {"claims": [planned]}},
    }
    message = await refusal(corner, "forged", binding)

    assert "was not made for this pod" in message
    assert (await driver.claim("other")).status.allocation is None


async def test_the_api_server_refuses_a_selector_that_does_not_compile(
    corner: Corner, driver: Driver
) -> None:
    """Bindery's own message is tested with the allocator; here the API server refuses first."""
    selector = {"cel": {"expression": "device.nope == 1"}}
    with pytest.raises(InvalidError, match="undefined field 'nope'"):
        await driver.make_claim("wrong", selectors=[selector])


async def test_devices_serve_extended_resources_and_their_claims_are_deleted_with_the_pods(
    corner: Corner, driver: Driver
) -> None:
    (node,) = await corner.add_nodes("a", cpu="8")
    await driver.publish(node, gpus(3))
    gang = Gang("cards", size=3, pod=driver.requesting(1))
    await corner.submit(gang)
    await corner.wait_bound(gang)

    claims = {claim.metadata.name: claim for claim in await driver.claims()}
    assert devices_of([*claims.values()]) == [(node, f"gpu-{index}") for index in range(3)]
    for pod in await corner.pods(gang):
        shown = pod.status.extended_resource_claim_status
        assert shown is not None
        claim = claims[shown.resource_claim_name]
        assert [user.uid for user in claim.status.reserved_for] == [pod.metadata.uid]
        assert is_extended(claim, pod.metadata.uid)
        assert FINALIZER in claim.metadata.finalizers
        (mapping,) = shown.request_mappings
        (request,) = claim.spec.devices.requests
        assert mapping.container_name == "main"
        assert mapping.resource_name == driver.resource
        assert mapping.request_name == request.name == "container-0-request-0"

    late = Gang("late", size=1, pod=driver.requesting(3))
    await corner.submit(late)
    condition = await corner.wait_condition(late, "False", "Unschedulable")
    assert "have too few free devices for its extended resources" in condition.message

    for pod in await corner.pods(gang):
        await corner.client.delete(PODS, pod.metadata.name, corner.namespace, grace_period_s=0)
    await corner.wait_bound(late)

    async def only_its_own() -> bool:
        (pod,) = await corner.pods(late)
        shown = pod.status.extended_resource_claim_status
        names = [claim.metadata.name for claim in await driver.claims()]
        return shown is not None and names == [shown.resource_claim_name]

    await wait_for(only_its_own, "the claims of the deleted pods go")
