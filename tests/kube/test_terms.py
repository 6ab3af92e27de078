"""What is sent for a term of leadership, and what no longer is."""

import asyncio
import gc

import msgspec
import pytest

from bindery.kube.errors import OutcomeUnknownError
from bindery.kube.http.carrier import Answer, FinishingCarrier, LeftWrites, TermCarrier
from bindery.kube.http.requests import JSON, ApiRequest
from bindery.kube.http.retry import Repeat

ASKED = ApiRequest("get", "GET", "pods", "/api/v1/pods", Repeat.ALWAYS, JSON)


class Counting:
    """A carrier that counts what it sends."""

    field_manager = "test"

    def __init__(self) -> None:
        self.sent = 0

    async def send(self, _request: ApiRequest, _timeout_s: float) -> Answer:
        self.sent += 1
        return Answer(200, b"{}", None)

    def stream(self, *_: object) -> object:
        raise NotImplementedError

    async def close(self) -> None: ...


async def test_nothing_is_sent_for_a_term_that_is_over() -> None:
    """A process that was frozen for longer than its Lease goes on in the middle of its work."""
    carrier, is_valid = Counting(), True
    of_term = TermCarrier(carrier, lambda: is_valid)  # type: ignore[arg-type]  # streams nothing
    await of_term.send(ASKED, 1.0)

    is_valid = False
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(of_term.send(ASKED, 1.0), 0.01)

    assert carrier.sent == 1


class Slow(Counting):
    """A carrier that answers on request."""

    def __init__(self) -> None:
        super().__init__()
        self.may_answer = asyncio.Event()

    async def send(self, request: ApiRequest, timeout_s: float) -> Answer:
        await self.may_answer.wait()
        return await super().send(request, timeout_s)


@pytest.mark.parametrize(("method", "goes_on"), [("PATCH", True), ("GET", False)])
async def test_a_write_whose_caller_is_cancelled_goes_on_and_is_waited_for(
    method: str, *, goes_on: bool
) -> None:
    carrier, writes = Slow(), LeftWrites()
    finishing = FinishingCarrier(carrier, writes)  # type: ignore[arg-type]  # streams nothing
    request = msgspec.structs.replace(ASKED, method=method)
    caller = asyncio.create_task(finishing.send(request, 1.0))
    await asyncio.sleep(0)

    caller.cancel()
    await asyncio.wait([caller])
    waiting = asyncio.create_task(writes.ended())
    await asyncio.sleep(0.01)

    assert caller.cancelled()
    assert waiting.done() is not goes_on
    assert writes.are_open is goes_on
    carrier.may_answer.set()
    await waiting
    assert not writes.are_open
    assert carrier.sent == goes_on


async def test_a_write_that_a_frozen_process_has_not_sent_is_not_sent_after_its_term() -> None:
    carrier, is_valid, writes = Counting(), True, LeftWrites()
    of_term = TermCarrier(carrier, lambda: is_valid)  # type: ignore[arg-type]  # streams nothing
    finishing = FinishingCarrier(of_term, writes)
    caller = asyncio.create_task(finishing.send(msgspec.structs.replace(ASKED, method="PATCH"), 1))
    await asyncio.sleep(0)

    is_valid = False
    await asyncio.sleep(0.01)
    caller.cancel()
    await asyncio.wait([caller])
    writes.abandon()
    await asyncio.wait_for(writes.ended(), 60)

    assert carrier.sent == 0


async def test_an_error_of_a_write_whose_caller_is_cancelled_is_no_error_of_the_loop() -> None:
    class Failing(Slow):
        async def send(self, request: ApiRequest, timeout_s: float) -> Answer:
            await super().send(request, timeout_s)
            raise OutcomeUnknownError("no answer")

    carrier, writes, errors = Failing(), LeftWrites(), list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    finishing = FinishingCarrier(carrier, writes)  # type: ignore[arg-type]  # streams nothing
    caller = asyncio.create_task(finishing.send(msgspec.structs.replace(ASKED, method="PATCH"), 1))
    await asyncio.sleep(0)

    caller.cancel()
    await asyncio.wait([caller])
    carrier.may_answer.set()
    await writes.ended()
    await asyncio.sleep(0)
    del caller  # its traceback has the write
    gc.collect()

    assert not errors


async def test_a_write_is_not_waited_for_when_its_caller_has_the_answer() -> None:
    carrier, writes = Counting(), LeftWrites()
    finishing = FinishingCarrier(carrier, writes)  # type: ignore[arg-type]  # streams nothing

    await finishing.send(msgspec.structs.replace(ASKED, method="PATCH"), 1.0)
    await writes.ended()

    assert carrier.sent == 1
