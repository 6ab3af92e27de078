"""Taints of devices (KEP-5055)."""

from collections.abc import Sequence

from bindery.kube.objects.claims import DeviceToleration
from bindery.kube.objects.devices import Device
from bindery.kube.objects.taints import tolerates


def is_kept_away(device: Device, tolerations: Sequence[DeviceToleration]) -> bool:
    """Return whether `device` has a taint without a match in `tolerations`.

    Only the effects NoSchedule and NoExecute count, as in Kubernetes.
    """
    return any(
        taint.effect in ("NoSchedule", "NoExecute") and not tolerates(tolerations, taint)
        for taint in device.taints
    )
