"""The administrator of the tests' cluster, for what is not asynchronous: fixtures, and plain tests.

It does by the project's own client what a kubectl would, which costs some seven times as much to
start.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from bindery.kube.client import Client
from bindery.kube.objects import KubeObject

T = TypeVar("T")


class Plain(KubeObject, frozen=True, rename="camel", kw_only=True):
    """Any object, as JSON says it."""

    spec: Any = None
    status: Any = None
    message: str = ""


class Administrator:
    """Runs work with a client; a new one each time, as the API server may have been restarted."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig

    def __call__(self, work: Callable[[Client], Awaitable[T]]) -> T:
        async def run() -> T:
            async with Client.connect(self._kubeconfig, user_agent="bindery-test/0") as client:
                return await work(client)

        return asyncio.run(run())
