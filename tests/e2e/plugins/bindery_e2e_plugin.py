"""A binder plugin that breaks things on request, found by the binder as any other plugin.

The tests put this folder on PYTHONPATH; the dist-info beside it holds the entry point. Its
arguments configure its actions, and it writes them to a journal that the tests read.
"""

import os
import signal
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from bindery.binder.plugins.interface import BindContext, PluginError


class Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid")

    journal: Path
    """Gets a line a call: step, pod, node."""
    die_in: str = ""
    """The step in which the process ends itself as a crash does, once: pre_bind, post_bind, …"""
    die_at: int = 1
    """In which call of that step."""
    refuse_node: str = ""
    """pre_bind fails, for good, for pods on nodes whose names end so."""
    refuse_turn_on: str = ""
    """The same of before_bind."""


class Saboteur:
    name: ClassVar[str] = "saboteur"
    arguments: ClassVar[type[BaseModel]] = Arguments

    def __init__(self, arguments: Arguments) -> None:
        self._arguments = arguments

    async def pre_bind(self, context: BindContext) -> None:
        self._step("pre_bind", context)
        refused = self._arguments.refuse_node
        if refused and context.binding.selected_node.endswith(refused):
            raise PluginError("this node is refused", reason="NodeRefused", permanent=True)

    async def before_bind(self, context: BindContext) -> None:
        refused = self._arguments.refuse_turn_on
        if refused and context.binding.selected_node.endswith(refused):
            raise PluginError("this node is refused", reason="NodeRefused", permanent=True)

    async def not_bound(self, context: BindContext) -> None:
        """Nothing was taken."""

    async def post_bind(self, context: BindContext) -> None:
        self._step("post_bind", context)

    async def rollback(self, context: BindContext) -> None:
        self._step("rollback", context)

    def _step(self, step: str, context: BindContext) -> None:
        binding, journal = context.binding, self._arguments.journal
        with journal.open("a") as file:
            file.write(f"{step} {binding.pod_name} {binding.selected_node}\n")
        calls = sum(line.startswith(f"{step} ") for line in journal.read_text().splitlines())
        if step == self._arguments.die_in and calls == self._arguments.die_at:
            os.kill(os.getpid(), signal.SIGKILL)
