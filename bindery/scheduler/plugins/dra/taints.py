"""Taints of devices and who tolerates them (KEP-5055)."""

from collections.abc import Sequence

from bindery.kube.claims import DeviceToleration
from bindery.kube.devices import Device
from bindery.kube.taints import tolerates


def is_kept_away(device: Device, tolerations: Sequence[DeviceToleration]) -> bool:
    """Return whether a taint keeps requests with `tolerations` from `device`.

    Only the effects NoSchedule and NoExecute do; others are ignored, as Kubernetes does.
    """
    return any(
        taint.effect in ("NoSchedule", "NoExecute") and not tolerates(tolerations, taint)
        for taint in device.taints
    )
