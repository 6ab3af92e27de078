"""numa in the steps of a binding: the predicted zones become a record on the pod.

The record is written with the binding itself, so it costs no request, and a scheduler that starts
later knows what the pod holds.
"""

from collections.abc import Mapping
from typing import Final

from bindery.api import numaplacement
from bindery.api.names import NUMA_ZONES_ANNOTATION
from bindery.api.numaplacement import NumaPlacement
from bindery.binder.plugins.interface import BindContext, PluginError
from bindery.kube.bindrequests import PodBinding

_NO_ZONES: Final = "NoNumaZones"


class Numa:
    """Records the predicted NUMA zones of pods."""

    name = numaplacement.PLUGIN

    def concerns(self, binding: PodBinding) -> bool:
        """Return whether zones were predicted for the pod."""
        return self.name in binding.plugin_data

    async def pre_bind(self, context: BindContext) -> None:
        """Check the prediction."""
        _placement(context)

    def binding_annotations(self, context: BindContext) -> Mapping[str, str]:
        """Return the record of the predicted zones."""
        return {NUMA_ZONES_ANNOTATION: _placement(context).record(context.pod.uid)}


def _placement(context: BindContext) -> NumaPlacement:
    found = numaplacement.from_data(context.data)
    if found is None:
        message = "the request has no readable NUMA zones for the pod"
        raise PluginError(message, reason=_NO_ZONES, permanent=True)
    return found
