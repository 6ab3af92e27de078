"""The stream with the health of the node's GPUs; the kubelet shows it in the status of pods."""

from collections.abc import AsyncIterator, Callable
from typing import Final

from bindery.nodeagent.gpuclaims.offers import Gpus, WatchedGpus
from bindery.nodeagent.sockets.definitions import drahealth_pb2 as api
from bindery.nodeagent.sockets.services import Methods

_REPEAT_S: Final = 10.0
_VALID_S: Final = 30
"""The kubelet takes a device without a later report for unknown after this time."""


class HealthReporter:
    """Reports the health of the GPUs of the node `node`; `now_s`: seconds since the epoch."""

    def __init__(self, node: str, gpus: WatchedGpus, now_s: Callable[[], float]) -> None:
        self._node, self._gpus, self._now_s = node, gpus, now_s

    def methods(self) -> Methods:
        """Return the methods of the service."""
        return {"NodeWatchResources": self.watch}

    async def watch(
        self, _request: api.NodeWatchResourcesRequest
    ) -> AsyncIterator[api.NodeWatchResourcesResponse]:
        """Yield the health of all GPUs at each change, and before the last report is too old."""
        while True:
            yield report(self._node, self._gpus.now, int(self._now_s()))
            await self._gpus.change(_REPEAT_S)


def report(node: str, gpus: Gpus, now_s: int) -> api.NodeWatchResourcesResponse:
    """Return a report at `now_s`."""
    return api.NodeWatchResourcesResponse(
        devices=[
            api.DeviceHealth(
                device=api.DeviceIdentifier(pool_name=node, device_name=gpu.name),
                health=api.UNHEALTHY if gpu.problem else api.HEALTHY,
                last_updated_time=now_s,
                health_check_timeout_seconds=_VALID_S,
                message=gpu.problem,
            )
            for gpu in gpus
        ]
    )
