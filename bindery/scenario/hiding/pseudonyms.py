"""Pseudonyms for words, such as "n0012x7" for "train-worker-7". Used by `hidden`; pure.

Planning breaks ties by names: mostly as text, for the pods of a gang and for domains also with the
number at the end as a number. Invariant: pseudonyms have both orders of their words, and different
words have different pseudonyms. They show the order of the words and where numbers end them;
numbers are replaced too, as far as the orders allow.

A word is a stem and the digits at its end. The rank of the stem replaces the stem. If a stem
continues another one with a digit or a character that sorts before the digits ("train1",
"train-eval1"), ranks alone would sort the words as their stems, so the pseudonym continues that of
the other stem in the same way.
"""

import re
from bisect import bisect
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Final

_DIGITS: Final = "0123456789"
_LETTERS: Final = "nabcdefghijklmopqrstuvwxyz"
"""The first letters of pseudonyms; the usual one first."""
_END: Final = "x"
"""Ends the rank: the digits that follow are those of the word."""
PSEUDONYM: Final = re.compile(r"[a-z][0-9]+x[0-9]*(?:-?[a-z][0-9]+x[0-9]*)*")


def pseudonyms(
    words: Iterable[str], pods: Iterable[str] = (), kept: Iterable[str] = ()
) -> dict[str, str]:
    """Return word -> pseudonym.

    Args:
        words: the words to hide.
        pods: the names of pods among them: one without a number is sorted as with the number 0.
        kept: words that stay. Pseudonyms are sorted around them.
    """
    parts = {word: _parted(word) for word in words}
    stems = _Stems(parts.values(), {_parted(name)[0] for name in pods}, sorted(kept))
    return {word: stems.named(stem) + stems.digits(stem, d) for word, (stem, d) in parts.items()}


class _Stems:
    """The stems of words, and the digits that follow them."""

    def __init__(
        self, parts: Collection[tuple[str, str]], of_pods: Collection[str], kept: Sequence[str]
    ) -> None:
        self._kept = kept
        numbers: defaultdict[str, set[str]] = defaultdict(set)
        for stem, digits in parts:
            numbers[stem] |= {digits} - {""}
        self._numbered = {stem for stem, found in numbers.items() if found} | {*of_pods}
        bases = {stem: self._base(stem) for stem in sorted(numbers)}
        for stem, base in bases.items():
            if base is not None:
                numbers[base].add(_leading(stem[len(base) :]))
        self._as_they_are = {stem for stem, found in numbers.items() if _is_padded(found)}
        self._following: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        """Stem and first digits -> the next digits."""
        for stem, found in numbers.items():
            for digits in found:
                for at, digit in enumerate(digits):
                    self._following[stem, digits[:at]].add(digit)
        width, self._names = len(str(len(bases))), dict[str, str]()
        for rank, (stem, base) in enumerate(bases.items()):  # a base comes before the stem
            token = f"{self._letter(stem)}{rank:0{width}}{_END}"
            self._names[stem] = token if base is None else self._continued(stem, base, token)

    def named(self, stem: str) -> str:
        """Return the pseudonym of `stem`."""
        return self._names[stem]

    def digits(self, stem: str, digits: str) -> str:
        """Return other digits for `digits` after `stem`: as many, and in the same order."""
        if stem in self._as_they_are:
            return digits
        return "".join(
            self._digit(self._following[stem, digits[:at]], digit)
            for at, digit in enumerate(digits)
        )

    def _base(self, stem: str) -> str | None:
        """Return the longest stem with numbers that `stem` continues with a digit or a character
        that sorts before the digits; None if there is none.
        """
        ends = (at for at in range(len(stem) - 1, -1, -1) if stem[at] <= _DIGITS[-1])
        return next((stem[:at] for at in ends if stem[:at] in self._numbered), None)

    def _continued(self, stem: str, base: str, token: str) -> str:
        rest = stem[len(base) :]
        digits = _leading(rest)
        link = "-" if rest[len(digits)] < _DIGITS[0] else ""
        return f"{self._names[base]}{self.digits(base, digits)}{link}{token}"

    def _letter(self, stem: str) -> str:
        at = bisect(self._kept, stem)
        return between(self._kept[at - 1] if at else "", self._kept[at:])

    @staticmethod
    def _digit(known: Collection[str], digit: str) -> str:
        # Zero stays zero: as a leading digit it does not make a number larger.
        return digit if digit == "0" else str(1 + sorted({*known} - {"0"}).index(digit))


def between(low: str, above: Sequence[str]) -> str:
    """Return a text such that it, followed by a digit or a point, sorts between `low` and the
    first of `above`.
    """
    high = above[0] if above else None
    letters = (c for c in _LETTERS if low < c + "." and (high is None or c + ":" <= high))
    return next(letters, f"{low}.")


def _parted(word: str) -> tuple[str, str]:
    stem = word.rstrip(_DIGITS)
    return stem, word[len(stem) :]


def _leading(text: str) -> str:
    return text[: len(text) - len(text.lstrip(_DIGITS))]


def _is_padded(numbers: Collection[str]) -> bool:
    """Return whether `numbers` have different lengths, and zeros at their beginning."""
    has_zeros = any(len(number) > 1 and number[0] == "0" for number in numbers)
    return has_zeros and len({len(number) for number in numbers}) > 1
