"""The 32-bit FNV-1a hash, which is the checksum of most of the kubelet's checkpoints.

The hash takes one byte after the other: value = (value XOR byte) * PRIME mod 2^32. A checkpoint has
thousands of bytes, and a loop over them would be most of the time of an admission. Two facts give
the same number without it:

- XOR changes the lowest 8 bits of the value only. With x the low byte of the value after the XOR,
  and d the change, the result is the sum of d * PRIME^k, plus OFFSET * PRIME^n.
- Bit k of a product of an odd number depends on bit k of x and on lower bits of x. So the bits of
  all x follow one after the other, each by a running XOR over all bytes.
"""

from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

_OFFSET: Final = 0x811C9DC5
_PRIME: Final = 0x01000193
_MASK_32: Final = 0xFFFFFFFF

_LOOP_BYTES: Final = 1000
"""Below this, a loop is faster."""


def fnv1a(data: bytes) -> int:
    """Return the 32-bit FNV-1a hash of `data`."""
    if len(data) < _LOOP_BYTES:
        value = _OFFSET
        for byte in data:
            value = ((value ^ byte) * _PRIME) & _MASK_32
        return value
    taken = np.frombuffer(data, np.uint8)
    after = _low_bytes(taken)
    change = (after.astype(np.int32) - (after ^ taken)).astype(np.uint32)
    total = int((change * _powers(len(data))).sum(dtype=np.uint32))
    return (total + _OFFSET * pow(_PRIME, len(data), 1 << 32)) & _MASK_32


def _low_bytes(taken: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the low byte of the value after the XOR with each byte."""
    known = np.zeros_like(taken)
    for place in range(8):
        bit = np.uint8(1 << place)
        flips = (taken ^ known * np.uint8(_PRIME & 0xFF)) & bit
        before = np.empty_like(flips)
        before[0] = np.uint8(_OFFSET & 0xFF) & bit
        before[1:] = flips[:-1]
        np.bitwise_xor.accumulate(before, out=before)
        known |= (before ^ taken) & bit
    return known


@lru_cache(maxsize=8)
def _powers(count: int) -> NDArray[np.uint32]:
    """Return PRIME^count, …, PRIME^1 mod 2^32."""
    factors = np.full(count, _PRIME, np.uint32)
    return np.multiply.accumulate(factors, dtype=np.uint32)[::-1].copy()
