"""Makes `status.allocation` of a claim from the result of a search, as Kubernetes writes it.

The ledger calls it. The same choice gives the same allocation and the same share ids, so a plan can
be written twice. Source: the end of `Allocate` in allocator_incubating.go of
k8s.io/dynamic-resource-allocation 0.36.
"""

from collections.abc import Sequence
from uuid import NAMESPACE_URL, uuid5

from bindery.api.quantity import nano_text
from bindery.kube.objects.claims import (
    AllocationConfiguration,
    AllocationResult,
    DeviceAllocation,
    DeviceResult,
)
from bindery.kube.objects.podspec import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from bindery.scheduler.plugins.dra.allocator import ChosenDevice
from bindery.scheduler.plugins.dra.claims import PreparedClaim


def allocation(
    claim: PreparedClaim, claim_uid: str, choices: Sequence[ChosenDevice], node_name: str
) -> AllocationResult:
    """Return the allocation with `choices` for `claim` on the node."""
    return AllocationResult(
        devices=DeviceAllocation(
            results=[_result(choice, claim_uid, i) for i, choice in enumerate(choices)],
            config=_configuration(claim, choices),
        ),
        node_selector=_node_selector(choices, node_name),
    )


def _result(choice: ChosenDevice, claim_uid: str, index: int) -> DeviceResult:
    record, device = choice.record, choice.record.device
    share = None
    if choice.consumed is not None:
        share = str(uuid5(NAMESPACE_URL, f"{claim_uid}/{choice.wish.name}/{record.id}/{index}"))
    return DeviceResult(
        request=choice.wish.name,
        driver=record.id.driver,
        pool=record.id.pool,
        device=record.id.device,
        admin_access=True if choice.wish.has_admin_access else None,
        tolerations=list(choice.wish.tolerations),
        binding_conditions=device.binding_conditions,
        binding_failure_conditions=device.binding_failure_conditions,
        share_id=share,
        consumed_capacity={
            name: nano_text(amount) for name, amount in (choice.consumed or {}).items()
        },
    )


def _configuration(
    claim: PreparedClaim, choices: Sequence[ChosenDevice]
) -> list[AllocationConfiguration]:
    """Return the configurations of the classes, each class once, then those of the claim."""
    chosen = {choice.wish.names[0]: choice.wish for choice in choices}
    classes: dict[str, list[str]] = {}
    by_name = {wish.device_class.metadata.name: wish.device_class for wish in chosen.values()}
    # In the order of the requests, not of the choices: the first use of a class decides its place.
    for alternatives in claim.requests:
        wish = chosen.get(alternatives[0].names[0])
        if wish is not None:
            classes.setdefault(wish.device_class.metadata.name, []).append(wish.name)
    found = [
        AllocationConfiguration(source="FromClass", requests=names, opaque=each.opaque)
        for name, names in classes.items()
        for each in by_name[name].spec.config
    ]
    applying = {name for wish in chosen.values() for name in wish.names}
    return found + [
        AllocationConfiguration(source="FromClaim", requests=each.requests, opaque=each.opaque)
        for each in claim.spec.config
        if not each.requests or not applying.isdisjoint(each.requests)
    ]


def _node_selector(choices: Sequence[ChosenDevice], node_name: str) -> NodeSelector | None:
    """Return the nodes with access to all devices; None for every node."""
    expressions: list[NodeSelectorRequirement] = []
    fields: list[NodeSelectorRequirement] = []
    for choice in choices:
        # One local device binds the whole claim to the node.
        if choice.record.node_name or choice.record.device.binds_to_node:
            only = NodeSelectorRequirement(key="metadata.name", operator="In", values=[node_name])
            return NodeSelector(node_selector_terms=[NodeSelectorTerm(match_fields=[only])])
        selector = choice.record.node_selector
        for term in selector.node_selector_terms if selector is not None else ():
            expressions += [e for e in term.match_expressions or () if e not in expressions]
            fields += [e for e in term.match_fields or () if e not in fields]
    if not expressions and not fields:
        return None
    # All devices must be reachable, so their requirements go into one term.
    term = NodeSelectorTerm(match_expressions=expressions or None, match_fields=fields or None)
    return NodeSelector(node_selector_terms=[term])
