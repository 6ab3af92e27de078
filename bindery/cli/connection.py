"""How commands reach the cluster that the user means.

`main` has stored the global options as a `ClusterChoice`; each command that needs a cluster calls
`with_client`. Only connecting happens here.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

import typer

from bindery import __version__
from bindery.cli.choice import ClusterChoice
from bindery.kube.client import Client

Answer = TypeVar("Answer")

_TIMEOUT_S = 10.0
"""A person waits for each call; a cluster that takes longer is as good as unreachable."""


def with_client(context: typer.Context, use: Callable[[Client], Awaitable[Answer]]) -> Answer:
    """Return what `use` answers, given a client of the chosen cluster.

    Raises:
        KubeError: the cluster does not answer, or refuses.
    """
    choice = context.find_object(ClusterChoice) or ClusterChoice()

    # It warns about a missing kubeconfig by itself, before the error that says the same.
    logging.getLogger("kubernetes").setLevel(logging.ERROR)

    async def connected() -> Answer:
        async with Client.connect(
            choice.kubeconfig,
            context=choice.context,
            user_agent=f"bindery-cli/{__version__}",
            request_timeout_s=_TIMEOUT_S,
        ) as client:
            return await use(client)

    return asyncio.run(connected())
