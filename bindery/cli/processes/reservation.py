"""`bindery reservation hold`: runs in a reservation pod, which holds a GPU for others to share.

Imports little, because the first share of a GPU waits for its start.
"""

import asyncio
import logging
import os
import signal
from typing import Annotated

import typer

from bindery import __version__
from bindery.cli.errors import CommandError
from bindery.cli.options import LogLevel, command_group
from bindery.kube.client import Client
from bindery.nodeagent.reservation import Identity, NoDeviceError, hold, visible_device
from bindery.observability import plainlogs

COMPONENT = "bindery-reservation"
app = command_group("Holds a GPU for the pods that share it.")

_log = logging.getLogger(__name__)


@app.command("hold")
def hold_device(
    pod: Annotated[str, typer.Option(envvar="POD_NAME", help="This pod.")],
    namespace: Annotated[str, typer.Option(envvar="POD_NAMESPACE", help="Its namespace.")],
    log_level: LogLevel = "info",
) -> None:
    """Write on this pod which GPU it got, and hold it until the pod is deleted."""
    plainlogs.configure(COMPONENT, log_level)
    _log.info("looks for its GPU", extra=plainlogs.with_fields(pod=pod, namespace=namespace))
    try:
        asyncio.run(_hold(Identity(namespace, pod)))
    except NoDeviceError as error:
        raise CommandError(str(error)) from error
    except asyncio.CancelledError:
        return


async def _hold(pod: Identity) -> None:
    work = asyncio.current_task()
    assert work is not None, "asyncio.run makes a task"
    # As process 1 of its container, the process would not end by the signal itself.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, work.cancel)
    device = await visible_device(os.environ)
    agent = f"{COMPONENT}/{__version__}"
    async with Client.connect(user_agent=agent, is_command=True) as client:
        await hold(client, pod, device)
