"""Every kind of persistent volume, from the claim to the bound pod, with the real controllers.

The volume controller and the one for ephemeral volumes run in kube-controller-manager; a stand-in
plays the part of a driver's provisioner.
"""

from collections.abc import AsyncIterator

import pytest

from bindery.api.configuration import PluginConfiguration
from devcluster.components import Component, Components
from fakes.provisioner import ProvisionerStandIn
from tests.e2e.storagecorner import Storage, claim_spec, using
from tests.e2e.support import Corner, Gang, Observer, binder_configuration, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("scheduler", "binder", "observer")]

LATE = "WaitForFirstConsumer"


@pytest.fixture(scope="module")
def binder(module_components: Components) -> Component:
    configuration = binder_configuration(PluginConfiguration(name="volumes"))
    return module_components.start_binder(configuration).wait_ready()


@pytest.fixture
async def storage(corner: Corner) -> AsyncIterator[Storage]:
    storage = Storage(corner)
    yield storage
    await storage.clean()


@pytest.fixture
async def provisioner(storage: Storage) -> AsyncIterator[ProvisionerStandIn]:
    corner = storage.corner
    stand_in = ProvisionerStandIn(corner.client, corner.namespace, storage.driver)
    async with stand_in.serving():
        yield stand_in


async def test_a_gang_gets_the_smallest_local_volumes_that_fit_and_runs_on_their_nodes(
    corner: Corner, storage: Storage, observer: Observer
) -> None:
    a, b, _ = await corner.add_nodes("a", "b", "c")
    local = await storage.add_class("local", LATE)
    of_class = {"storageClassName": local}
    await storage.add_volume("large-a", "12Gi", a, **of_class)
    small_a = await storage.add_volume("small-a", "10Gi", a, **of_class)
    tiny_b = await storage.add_volume("tiny-b", "1Gi", b, **of_class)
    small_b = await storage.add_volume("small-b", "20Gi", b, **of_class)
    await storage.add_claim("data-0", local, "5Gi")
    await storage.add_claim("data-1", local, "15Gi")
    first, second = Gang("g", 1, pod=using("data-0")), Gang("g", 1, pod=using("data-1"))
    await corner.create_group(Gang("g", 2))
    await corner.create_pod(first, 0)
    await corner.create_pod(second, 1)

    await corner.wait_bound(Gang("g", 2))
    volumes = [(await storage.wait_claim_bound(f"data-{n}")).spec.volume_name for n in (0, 1)]
    nodes = {pod.metadata.name: pod.spec.node_name for pod in await corner.pods(first)}
    assert volumes == [small_a, small_b]
    assert nodes == {"g-0": a, "g-1": b}
    assert (await storage.volume(tiny_b)).spec.claim_ref is None
    assert len(observer.created_requests) == 1
    await corner.wait_nothing_left()


async def test_a_volume_is_provisioned_for_the_planned_node_before_the_pod_is_bound(
    corner: Corner, storage: Storage, provisioner: ProvisionerStandIn
) -> None:
    await corner.add_nodes("a", "b")
    ssd = await storage.add_class("ssd", LATE, storage.driver)
    await storage.add_claim("data", ssd)
    gang = Gang("g", 1, pod=using("data"))
    await corner.submit(gang)

    await corner.wait_bound(gang)
    claim = await storage.wait_claim_bound("data")
    assert provisioner.made == {"data": await storage.node_of(gang)}
    assert claim.spec.volume_name == f"pvc-{claim.metadata.uid}"


async def test_a_node_without_provisionable_volumes_is_left_for_another(
    corner: Corner, storage: Storage, provisioner: ProvisionerStandIn
) -> None:
    a, b = await corner.add_nodes("a", "b")
    ssd = await storage.add_class("ssd", LATE, storage.driver)
    await storage.add_claim("data", ssd)
    provisioner.full_nodes.add(a)
    gang = Gang("g", 1, pod=using("data"))
    await corner.submit(gang)

    await corner.wait_bound(gang)
    assert await storage.node_of(gang) == b
    assert set(provisioner.refused) <= {a}
    assert provisioner.made == {"data": b}


async def test_a_pod_waits_for_its_immediate_claim_and_runs_on_the_node_of_its_volume(
    corner: Corner, storage: Storage
) -> None:
    _, b = await corner.add_nodes("a", "b")
    now = await storage.add_class("now", "Immediate")
    await storage.add_claim("data", now)
    gang = Gang("g", 1, pod=using("data"))
    await corner.submit(gang)

    await corner.wait_pods_say(gang, 'pod has unbound immediate PersistentVolumeClaims: "data"')
    await storage.add_volume("late", "1Gi", b, storageClassName=now)
    await corner.wait_bound(gang)
    assert await storage.node_of(gang) == b


async def test_a_pod_runs_on_the_node_of_a_volume_reserved_for_its_claim(
    corner: Corner, storage: Storage
) -> None:
    a, b = await corner.add_nodes("a", "b")
    local = await storage.add_class("local", LATE)
    await storage.add_volume("free", "1Gi", a, storageClassName=local)
    reference = {"namespace": corner.namespace, "name": "data"}
    promised = await storage.add_volume(
        "promised", "10Gi", b, storageClassName=local, claimRef=reference
    )
    await storage.add_claim("data", local)
    gang = Gang("g", 1, pod=using("data"))
    await corner.submit(gang)

    await corner.wait_bound(gang)
    assert await storage.node_of(gang) == b
    assert (await storage.wait_claim_bound("data")).spec.volume_name == promised


async def test_a_generic_ephemeral_volume_is_created_for_its_pod(
    corner: Corner, storage: Storage, provisioner: ProvisionerStandIn
) -> None:
    await corner.add_nodes("a")
    ssd = await storage.add_class("ssd", LATE, storage.driver)
    template = {"volumeClaimTemplate": {"spec": claim_spec(ssd)}}
    gang = Gang("g", 2, pod={"volumes": [{"name": "scratch", "ephemeral": template}]})
    await corner.submit(gang)

    await corner.wait_bound(gang)
    assert set(provisioner.made) == {"g-0-scratch", "g-1-scratch"}


async def test_a_claim_of_another_owner_is_not_used_as_an_ephemeral_volume(
    corner: Corner, storage: Storage
) -> None:
    await corner.add_nodes("a")
    local = await storage.add_class("local", LATE)
    await storage.add_claim("g-0-scratch", local)
    template = {"volumeClaimTemplate": {"spec": claim_spec(local)}}
    gang = Gang("g", 1, pod={"volumes": [{"name": "scratch", "ephemeral": template}]})
    await corner.submit(gang)

    await corner.wait_pods_say(gang, '"g-0-scratch" was not created for pod g-0')


async def test_a_read_write_once_pod_claim_is_usable_after_its_pod_is_deleted(
    corner: Corner, storage: Storage, provisioner: ProvisionerStandIn
) -> None:
    await corner.add_nodes("a")
    ssd = await storage.add_class("ssd", LATE, storage.driver)
    await storage.add_claim("one", ssd, mode="ReadWriteOncePod")
    first, second = Gang("first", 1, pod=using("one")), Gang("second", 1, pod=using("one"))
    await corner.submit(first)
    await corner.wait_bound(first)
    await corner.submit(second)

    text = 'persistentvolumeclaim "one" is ReadWriteOncePod and pod first-0 uses it'
    await corner.wait_pods_say(second, text)
    await corner.delete_pod("first-0")
    await corner.wait_bound(second)
    assert list(provisioner.made) == ["one"]


async def test_a_node_gets_no_more_volumes_than_it_can_attach(
    corner: Corner, storage: Storage, provisioner: ProvisionerStandIn
) -> None:
    (a,) = await corner.add_nodes("a")
    await storage.add_attach_limit(a, 2)
    ssd = await storage.add_class("ssd", LATE, storage.driver)
    gangs = [Gang(f"g{n}", 1, cpu="100m", pod=using(f"c{n}")) for n in range(3)]
    for number, gang in enumerate(gangs):
        await storage.add_claim(f"c{number}", ssd)
        await corner.submit(gang)

    async def two_are_bound() -> bool:
        return sum([await corner.bound_count(gang) for gang in gangs]) == 2

    await wait_for(two_are_bound, "two pods bound")
    (waiting,) = [gang for gang in gangs if not await corner.bound_count(gang)]
    await corner.wait_pods_say(waiting, "0/1 nodes are available: 1 exceed max volume count")
    (done, _) = [gang for gang in gangs if gang is not waiting]
    await corner.delete_pod(f"{done.name}-0")
    await corner.wait_bound(waiting)
    assert len(provisioner.made) == 3


async def test_a_driver_provisions_no_volumes_beyond_its_published_capacity(
    corner: Corner, storage: Storage, provisioner: ProvisionerStandIn
) -> None:
    a, b = await corner.add_nodes("a", "b")
    ssd = await storage.add_class("ssd", LATE, storage.driver)
    await storage.add_capacity(a, ssd, "5Gi")
    await storage.add_capacity(b, ssd, "50Gi")
    await storage.add_claim("medium", ssd, "10Gi")
    await storage.add_claim("huge", ssd, "100Gi")
    medium, huge = Gang("medium", 1, pod=using("medium")), Gang("huge", 1, pod=using("huge"))
    await corner.submit(medium, huge)

    await corner.wait_bound(medium)
    assert await storage.node_of(medium) == b
    await corner.wait_pods_say(huge, "2 did not have enough free storage")
    assert provisioner.made == {"medium": b}


async def test_a_pod_with_a_missing_claim_reports_it_and_is_bound_when_it_exists(
    corner: Corner, storage: Storage
) -> None:
    (a,) = await corner.add_nodes("a")
    local = await storage.add_class("local", LATE)
    await storage.add_volume("v", "1Gi", a, storageClassName=local)
    gang = Gang("g", 1, pod=using("data"))
    await corner.submit(gang)

    await corner.wait_pods_say(gang, 'persistentvolumeclaim "data" not found')
    await storage.add_claim("data", local)
    await corner.wait_bound(gang)
