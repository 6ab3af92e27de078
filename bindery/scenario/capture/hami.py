"""The annotations of HAMi's protocol on live nodes and pods, for a scenario.

Used by `nodes` and `pods`; pure. A scenario's pod has one container beside its init
containers, so the devices of all others are written as those of one.
"""

from typing import Final

from bindery.api.hami import names, wishes
from bindery.api.hami.assignment import PROTOCOL_KEYS, forged_key, read_record
from bindery.api.hami.errors import HamiFormatError
from bindery.api.hami.poddevices import decode, encode
from bindery.api.hami.vendortable import BY_WORD, VENDORS
from bindery.api.names import SCHEDULER_NAME
from bindery.kube.objects.watched import Node, Pod

_OF_NODES: Final = frozenset(
    {names.CORDONED_DEVICES, names.NVIDIA_PAIR_SCORES, *(vendor.register_key for vendor in VENDORS)}
)
_OF_PODS: Final = wishes.keys(VENDORS) | {names.ASSIGNED_NODE, names.MIG_ALLOCATIONS}
_ALLOCATED: Final = frozenset(vendor.allocated_key for vendor in VENDORS)


def node_annotations(node: Node) -> dict[str, str]:
    """Return the annotations of registered and cordoned devices of `node`."""
    return {key: text for key, text in node.metadata.annotations.items() if key in _OF_NODES}


def pod_annotations(pod: Pod) -> dict[str, str]:
    """Return the device wishes of `pod` and, once it is bound, the devices that it holds.

    Of what the binder has written onto a pod that is not bound yet nothing is left, as in the
    snapshot it is to be planned; what others have written there keeps it from being planned.
    """
    annotations = pod.metadata.annotations
    found = {key: text for key, text in annotations.items() if key in _OF_PODS}
    wished = {key: text for key, text in found.items() if key not in PROTOCOL_KEYS}
    if not pod.spec.node_name:
        forged = forged_key(annotations, pod.metadata.uid)
        return {**wished, forged: annotations[forged]} if forged else wished
    devices = {key: annotations[key] for key in _ALLOCATED & annotations.keys()}
    record = read_record(annotations, pod.metadata.uid)
    if record is not None:
        node, assignment = record
        found[names.ASSIGNED_NODE] = node
        devices = {BY_WORD[w].allocated_key: encode(s) for w, s in assignment.devices.items()}
    elif pod.spec.scheduler_name == SCHEDULER_NAME:
        return wished  # whoever has bound it may have written anything onto it
    count = len(pod.spec.init_containers or ())
    for key, text in sorted(devices.items()):
        try:
            slots = decode(text)
        except HamiFormatError:  # the scheduler cannot read it either
            continue
        running = tuple(device for slot in slots[count:] for device in slot)
        found[key] = encode((*slots[:count], running))
    return found
