"""Taints of devices and who tolerates them (KEP-5055)."""

from collections.abc import Iterable

from bindery.kube.claims import DeviceToleration
from bindery.kube.devices import Device, DeviceTaint


def is_kept_away(device: Device, tolerations: Iterable[DeviceToleration]) -> bool:
    """Return whether a taint keeps requests with `tolerations` from `device`.

    Only the effects NoSchedule and NoExecute do; others are ignored, as Kubernetes does.
    """
    return any(
        taint.effect in ("NoSchedule", "NoExecute")
        and not any(_tolerates(toleration, taint) for toleration in tolerations)
        for taint in device.taints
    )


def _tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value
