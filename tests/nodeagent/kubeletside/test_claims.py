"""Claims of pods through the sockets of drivers: v1 and v1beta1, silent, failing and gone."""

import asyncio

import pytest

from bindery.nodeagent.kubeletside import drivers
from bindery.nodecore.checkpoints import claims as files
from bindery.nodecore.claims.drivers import WIPING_DELAY_S
from bindery.nodecore.claims.facts import ClaimError
from bindery.nodecore.errors import RestoreError
from tests.nodeagent.kubeletside.socketworld import (
    DRIVER,
    DraDriver,
    SocketWorld,
    never,
    until,
    using,
    wanting,
)


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_a_container_gets_the_devices_of_its_claim(world: SocketWorld, version: str) -> None:
    world.claims.add("claim", "one")
    driver = DraDriver()
    async with world.driving(driver, version):
        assert await world.admit("one", gpus=0) == ("", "")
        await world.node.prepare(using("one"))
        pod = wanting("one").pod
        options = await world.node.options(pod, pod.containers[0])
        await world.node.unprepare(using("one"))

    assert options.cdi_devices == (f"{DRIVER}/gpu=0",)
    assert (driver.prepared, driver.unprepared) == (["uid-claim"], ["uid-claim"])


async def test_a_driver_that_does_not_answer_holds_only_its_own_pod(world: SocketWorld) -> None:
    world.claims.add("silent", "silent")
    for one in range(50):
        world.claims.add(f"claim-{one}", f"pod-{one}")
    driver = DraDriver()

    async def hold(uids: list[str]) -> None:
        if uids == ["uid-silent"]:
            await never()

    driver.hold = hold
    async with world.driving(driver):
        waiting = asyncio.create_task(world.node.prepare(using("silent", "silent")))
        await until(lambda: "uid-silent" in driver.prepared)

        for one in range(50):
            assert await world.admit(f"pod-{one}", gpus=0, cpu=1) == ("", "")
            await world.node.prepare(using(f"pod-{one}", f"claim-{one}"))

        assert not waiting.done()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def test_a_call_without_an_answer_in_time_fails_and_is_repeated(world: SocketWorld) -> None:
    await world.stop()
    world.claim_timeout_s = 0.2
    await world.start()
    world.claims.add("claim", "one")
    driver = DraDriver()

    async def hold(_uids: list[str]) -> None:
        await never()

    driver.hold = hold
    async with world.driving(driver):
        with pytest.raises(ClaimError) as error:
            await world.node.prepare(using("one"))
        assert str(error.value) == (
            "prepare dynamic resources: NodePrepareResources: rpc error: "
            "code = DeadlineExceeded desc = Deadline Exceeded"
        )
        driver.hold = None
        await world.node.prepare(using("one"))
        assert driver.prepared == ["uid-claim", "uid-claim"]


async def test_a_driver_that_dies_in_a_call_is_called_again_when_it_is_back(
    world: SocketWorld,
) -> None:
    world.claims.add("claim", "one")
    driver = DraDriver()

    async def hold(_uids: list[str]) -> None:
        await never()

    driver.hold = hold
    async with world.driving(driver):
        waiting = asyncio.create_task(world.node.prepare(using("one")))
        await until(lambda: bool(driver.prepared))
    with pytest.raises(ClaimError, match=r"prepare dynamic resources: NodePrepareResources: rpc"):
        await waiting
    await until(lambda: not world.registered())

    driver.hold = None
    async with world.driving(driver):
        await world.node.prepare(using("one"))
        assert driver.prepared == ["uid-claim", "uid-claim"]


async def test_failures_of_a_driver_are_reported_in_the_words_of_the_kubelet(
    world: SocketWorld,
) -> None:
    world.claims.add("claim", "one")
    with pytest.raises(ClaimError, match=f"resources: DRA driver {DRIVER} is not registered"):
        await world.node.prepare(using("one"))
    with pytest.raises(ClaimError, match=r"fetch ResourceClaim other: .* not found"):
        await world.node.prepare(using("one", "other"))
    driver = DraDriver(error="no memory")
    async with world.driving(driver):
        with pytest.raises(ClaimError, match="failed for ResourceClaim claim: no memory"):
            await world.node.prepare(using("one"))
        driver.error, driver.skips = "", True
        with pytest.raises(ClaimError, match="NodePrepareResources skipped 1 ResourceClaims"):
            await world.node.prepare(using("one"))
        driver.skips = False
        await world.node.prepare(using("one"))
        driver.error = "busy"
        with pytest.raises(ClaimError, match="unprepare dynamic resources: NodeUnprepareResources"):
            await world.node.unprepare(using("one"))
        assert world.node.manager.claims is not None
        assert world.node.manager.claims.might_need_to_unprepare("one")
        driver.error = ""
        await world.node.unprepare(using("one"))


async def test_a_claim_that_is_being_unprepared_is_not_given_to_the_next_pod(
    world: SocketWorld,
) -> None:
    world.claims.add("claim", "one", "two")
    driver = DraDriver()
    go_on = asyncio.Event()

    async def hold(_uids: list[str]) -> None:
        await go_on.wait()

    async with world.driving(driver):
        await world.node.prepare(using("one"))
        driver.hold = hold
        ending = asyncio.create_task(world.node.unprepare(using("one")))
        await until(lambda: bool(driver.unprepared))
        with pytest.raises(ClaimError, match="is being unprepared"):
            await world.node.prepare(using("two"))
        go_on.set()
        await ending
        await world.node.prepare(using("two"))

        assert driver.prepared == ["uid-claim", "uid-claim"]


async def test_an_agent_that_dies_in_a_call_prepares_once_more(world: SocketWorld) -> None:
    world.claims.add("claim", "one")
    driver = DraDriver()

    async def hold(_uids: list[str]) -> None:
        await never()

    driver.hold = hold
    async with world.driving(driver):
        waiting = asyncio.create_task(world.node.prepare(using("one")))
        await until(lambda: bool(driver.prepared))
        await world.node.stop()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        driver.hold = None
        await world.start(is_ready=False)
        await until(lambda: bool(world.registered()))

        assert world.node.manager.claims is not None
        assert world.node.manager.claims.might_need_to_unprepare("one")
        await world.node.prepare(using("one"))
        assert driver.prepared == ["uid-claim", "uid-claim"]


async def test_claims_of_a_pod_that_is_gone_are_unprepared_at_the_next_start(
    world: SocketWorld,
) -> None:
    world.claims.add("claim", "one")
    driver = DraDriver()
    async with world.driving(driver):
        assert await world.admit("one", gpus=0) == ("", "")
        await world.node.prepare(using("one"))
        world.node.release("one")
        await world.node.stop()

        await world.start(is_ready=False)
        await until(lambda: bool(world.registered()))
        world.node.ready()
        await until(lambda: driver.unprepared == ["uid-claim"])


async def test_a_driver_in_an_update_is_called_at_its_newest_instance(
    world: SocketWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine a connection can take longer; until then the older instance is called.
    monkeypatch.setattr(drivers, "_CONNECT_S", 60.0)
    world.claims.add("claim", "one")
    old, new = DraDriver(), DraDriver()
    async with world.driving(old, name="old"):
        async with world.driving(new, name="new"):
            await world.node.prepare(using("one"))
            assert (old.prepared, new.prepared) == ([], ["uid-claim"])
        await until(lambda: len(world.registered()) == 1)
        await world.node.unprepare(using("one"))

        assert (old.unprepared, new.unprepared) == (["uid-claim"], [])


async def test_slices_go_at_the_start_and_when_a_driver_stays_away(world: SocketWorld) -> None:
    await until(lambda: world.claims.wiped == [None])
    async with world.driving(DraDriver()):
        world.now_s += WIPING_DELAY_S + 1
    await until(lambda: not world.registered())
    assert world.claims.wiped == [None]

    world.now_s += WIPING_DELAY_S + 1

    await until(lambda: world.claims.wiped == [None, DRIVER])


async def test_a_checkpoint_of_claims_with_a_wrong_checksum_stops_the_start(
    world: SocketWorld,
) -> None:
    await world.node.stop()
    file = world.directory / files.FILE
    file.write_bytes(file.read_bytes().replace(b'"Checksum":', b'"Checksum":1'))

    with pytest.raises(RestoreError, match="please drain node and remove DRA state file"):
        await world.start()
