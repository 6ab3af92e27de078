"""The seeded random numbers of Go's `math/rand`, so that a seed means the published order.

Go's generator is an additive lagged Fibonacci sequence over the integers modulo 2**64:
y[n] = y[n - 607] + y[n - 273]. A seed becomes its state through a Lehmer sequence, combined with
607 constants. The constants are the state of the same recurrence 7.8e12 steps after seed 1; they
are computed here by jumping ahead, with powers of x modulo the characteristic polynomial.
"""

from functools import cache
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

Item = TypeVar("Item")
Words = NDArray[np.uint64]

_LONG: Final = 607
_SHORT: Final = 273
_STEPS: Final = 7_800_000_000_000
_PRIME: Final = 2**31 - 1
_FACTOR: Final = 48271
_MASK: Final = 2**64 - 1
_ZERO_SEED: Final = 89482311


class GoRandom:
    """The generator after `rand.Seed(seed)`."""

    def __init__(self, seed: int) -> None:
        own, constants = _lehmer(seed, (40, 20, 0)), _constants()
        self._state = [a ^ b for a, b in zip(own, constants, strict=True)]
        self._tap, self._feed = 0, _LONG - _SHORT

    def int63(self) -> int:
        """Return the next number of 63 bits."""
        self._tap = (self._tap - 1) % _LONG
        self._feed = (self._feed - 1) % _LONG
        value = (self._state[self._feed] + self._state[self._tap]) & _MASK
        self._state[self._feed] = value
        return value & (2**63 - 1)

    def below(self, limit: int) -> int:
        """Return `rand.Intn(limit)`."""
        if limit & (limit - 1) == 0:
            return (self.int63() >> 32) & (limit - 1)
        most = _PRIME - 2**31 % limit
        value = self.int63() >> 32
        while value > most:
            value = self.int63() >> 32
        return value % limit

    def shuffle(self, items: list[Item]) -> None:
        """Order `items` as `rand.Shuffle` does."""
        for last in range(len(items) - 1, 0, -1):
            other = self._scaled(last + 1)
            items[last], items[other] = items[other], items[last]

    def permutation(self, count: int) -> list[int]:
        """Return `rand.Perm(count)`."""
        found = [0] * count
        for index in range(count):
            other = self.below(index + 1)
            found[index], found[other] = found[other], index
        return found

    def _scaled(self, limit: int) -> int:
        """Return a number below `limit` by multiplication, as Shuffle draws it."""
        product = (self.int63() >> 31) * limit
        if product & 0xFFFFFFFF < limit:
            floor = 2**32 % limit
            while product & 0xFFFFFFFF < floor:
                product = (self.int63() >> 31) * limit
        return product >> 32


def _lehmer(seed: int, shifts: tuple[int, ...]) -> list[int]:
    """Return 607 words, each of three numbers of the Lehmer sequence of `seed`."""
    value = seed % _PRIME or _ZERO_SEED
    for _ in range(20):
        value = value * _FACTOR % _PRIME
    words = []
    for _ in range(_LONG):
        word = 0
        for shift in shifts:
            value = value * _FACTOR % _PRIME
            word ^= value << shift
        words.append(word & _MASK)
    return words


@cache
def _constants() -> tuple[int, ...]:
    """Return the 607 constants with which every seed is combined."""
    size = _LONG
    with np.errstate(over="ignore"):
        power: Words = np.zeros(size, np.uint64)
        power[0] = 1
        for bit in f"{_STEPS:b}":
            power = _reduced(np.convolve(power, power))
            if bit == "1":  # times x
                power = _reduced(np.concatenate([np.zeros(1, np.uint64), power]))
        # The place p of the state has the time t with p = 333 - t (modulo 607).
        first = _lehmer(1, (20, 10, 0))
        before = [first[(size - _SHORT - 1 - time) % size] for time in range(-size, 0)]
        sequence: Words = np.array(before + [0] * size, dtype=np.uint64)
        for index in range(size, 2 * size):
            sequence[index] = sequence[index - size] + sequence[index - _SHORT]
        found = [0] * size
        for offset in range(size):
            place = (size - _SHORT - 1 - (_STEPS - size + offset)) % size
            window = sequence[offset : offset + size]
            found[place] = int((power * window).sum(dtype=np.uint64))
    return tuple(found)


def _reduced(polynomial: Words) -> Words:
    """Return `polynomial` modulo x**607 = x**334 + 1."""
    rest: Words = polynomial.copy()
    for degree in range(len(rest) - 1, _LONG - 1, -1):
        factor = rest[degree]
        if factor:
            rest[degree - _LONG] += factor
            rest[degree - _SHORT] += factor
    return rest[:_LONG]
