"""The lines of a watch, for any division into chunks."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence

from hypothesis import given
from hypothesis import strategies as st

from bindery.kube.http.transport import lines

TEXTS = st.lists(st.binary(max_size=12).map(lambda text: text.replace(b"\n", b" ")), max_size=8)


async def chunked(stream: bytes, cuts: Sequence[int]) -> AsyncIterator[bytes]:
    edges = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    for begin, end in itertools.pairwise(edges):
        if begin < end:
            yield stream[begin:end]


async def read(stream: bytes, cuts: Sequence[int]) -> list[bytes]:
    return [line async for line in lines(chunked(stream, cuts))]


@given(texts=TEXTS, cuts=st.lists(st.integers(0, 200), max_size=10))
def test_lines_do_not_depend_on_the_chunks_of_the_stream(
    texts: list[bytes], cuts: list[int]
) -> None:
    whole = [text + b"\n" for text in texts]
    assert asyncio.run(read(b"".join(whole), cuts)) == whole


@given(text=st.binary(min_size=1, max_size=12), cuts=st.lists(st.integers(0, 20), max_size=3))
def test_a_line_without_a_newline_is_yielded_last(text: bytes, cuts: list[int]) -> None:
    whole, half = b"whole\n", text.replace(b"\n", b" ")
    assert asyncio.run(read(whole + half, cuts)) == [whole, half]
