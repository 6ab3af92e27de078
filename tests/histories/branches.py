"""Which branches of the code against failures histories have taken.

A branch is a conditional jump in the bytecode of a function; it has two ways, and each counts. Not
counted are assertions, and the ways in which a `with` block swallows an error. The areas are data.
"""

import dis
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from inspect import CO_NEWLOCALS
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
AREAS: Final[Mapping[str, tuple[str, ...]]] = {
    "retry": (
        "bindery/kube/http/calls.py",
        "bindery/kube/http/retry.py",
        "bindery/kube/watches/reflector.py",
        "bindery/binder/run/run.py",
    ),
    "rollback": (
        "bindery/binder/run/transaction.py",
        "bindery/binder/run/pod_progress.py",
        "bindery/binder/plugins/chain.py",
    ),
    "fencing": (
        "bindery/kube/lease.py",
        "bindery/scheduler/commit/fence.py",
        "bindery/binder/outcome/fencing.py",
    ),
    "withdrawal": (
        "bindery/scheduler/commit/writer.py",
        "bindery/scheduler/commit/evictor.py",
        "bindery/scheduler/cache/holds.py",
        "bindery/scheduler/cache/promises.py",
    ),
    "stale clean-up": (
        "bindery/scheduler/commit/stale.py",
        "bindery/scheduler/cache/staleness.py",
        "bindery/scheduler/cache/orphans.py",
        "bindery/binder/outcome/retention.py",
        "bindery/binder/plugins/gpusharing/plugin.py",
    ),
}
"""Area -> its modules."""

Way = tuple[str, int, int]
"""A module, the line of a branch, and the line that it leads to."""
_JUMPS: Final = ("POP_JUMP_", "JUMP_IF_", "FOR_ITER")
_OF_WITH: Final = 16
"""Instructions after WITH_EXCEPT_START within which the jump of the `with` block is."""
_Ways = Mapping[int, Mapping[int, Way]]
"""Offset of a jump -> offset of the next instruction -> the way."""


class Recorder:
    """Records the ways taken within `recording`; `modules` are paths below the root."""

    def __init__(self, modules: Collection[str]) -> None:
        self._modules = {str(ROOT / module): module for module in modules}
        self.taken: set[Way] = set()

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record what runs in the block."""
        sys.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(None)

    def _enter(self, frame: FrameType, event: str, _argument: Any) -> Callable[..., Any] | None:
        """Trace a call, or the next part of a generator, if it is of one of the modules."""
        module = self._modules.get(frame.f_code.co_filename)
        if event != "call" or module is None:
            return None
        ways, taken, leads = ways_of(frame.f_code, module), self.taken, None
        if not ways:
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True

        def follow(frame: FrameType, event: str, _argument: Any) -> Callable[..., Any]:
            nonlocal leads
            if event == "opcode":
                if leads is not None and (way := leads.get(frame.f_lasti)) is not None:
                    taken.add(way)
                leads = ways.get(frame.f_lasti)
            else:  # an error or a return: no jump was taken
                leads = None
            return follow

        return follow


@cache
def ways_of(code: CodeType, module: str) -> _Ways:
    """Return the ways of the branches of one function."""
    found: dict[int, dict[int, Way]] = {}
    steps, line, of_with = list(dis.get_instructions(code)), code.co_firstlineno, -_OF_WITH
    lines = dict(_lines(steps))
    for index, step in enumerate(steps[:-1]):
        line, after = lines[step.offset], steps[index + 1]
        if step.opname == "WITH_EXCEPT_START":
            of_with = index
        is_jump = step.opname.startswith(_JUMPS)
        if is_jump and index - of_with > _OF_WITH and after.opname != "LOAD_ASSERTION_ERROR":
            found[step.offset] = {
                offset: (module, line, lines[offset]) for offset in (after.offset, step.argval)
            }
    return found


def _lines(steps: list[dis.Instruction]) -> Iterator[tuple[int, int]]:
    line = 0
    for step in steps:
        line = step.starts_line or line
        yield step.offset, line


def all_ways(module: str) -> set[Way]:
    """Return the ways of all functions of a module."""
    path = ROOT / module
    found: set[Way] = set()
    codes = [compile(path.read_text(encoding="utf-8"), str(path), "exec")]
    while codes:
        code = codes.pop()
        codes += [each for each in code.co_consts if isinstance(each, CodeType)]
        if code.co_flags & CO_NEWLOCALS:  # a function, neither a module nor a class
            found.update(way for ways in ways_of(code, module).values() for way in ways.values())
    return found


def table(taken: Collection[Way]) -> str:
    """Return what was taken of each area and module."""
    lines = []
    for area, modules in AREAS.items():
        ways = {module: all_ways(module) for module in modules}
        lines.append(_row(area, set().union(*ways.values()), taken))
        lines += [_row(f"  {module}", of_module, taken) for module, of_module in ways.items()]
    return "\n".join(lines)


def _row(name: str, ways: Collection[Way], taken: Collection[Way]) -> str:
    count = sum(way in taken for way in ways)
    return f"{name:45} {count:4} of {len(ways):4}  {100 * count / max(1, len(ways)):5.1f} %"


def not_taken(taken: Collection[Way]) -> list[str]:
    """Return the ways that were not taken, as `file:line -> line`."""
    ways = {way for modules in AREAS.values() for module in modules for way in all_ways(module)}
    return [f"{module}:{line} -> {to}" for module, line, to in sorted(ways - set(taken))]
