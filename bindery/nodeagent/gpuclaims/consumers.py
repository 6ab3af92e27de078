"""The containers that use a claim: each has variables for one request with shares. Pure.

The kubelet gives a container the CDI devices of all requests that it uses. Of two with the same
variables, the container runtime keeps the last, so the container would miss GPUs without a word.
"""

from collections.abc import Collection, Iterator, Mapping

from bindery.kube.objects.claims import ResourceClaim
from bindery.kube.objects.podspec import Container
from bindery.kube.objects.watched import Pod
from bindery.nodeagent.gpuclaims.grants import GrantError
from bindery.nodeagent.gpuclaims.slices import DRIVER

Use = tuple[str, str]
"""Name of a claim, and a request of it; "" for all of its requests."""


def uses(pod: Pod) -> Mapping[str, Collection[Use]]:
    """Return what each container of a pod uses, if it uses any claim."""
    names = {each.name: each.resource_claim_name for each in pod.spec.resource_claims or ()}
    statuses = pod.status.resource_claim_statuses or ()
    names |= {each.name: each.resource_claim_name for each in statuses}
    found: dict[str, list[Use]] = {}
    for container in (*(pod.spec.init_containers or ()), *pod.spec.containers):
        for entry, request in _entries(container):
            if claim := names.get(entry):
                found.setdefault(container.name, []).append((claim, request))
    if (extended := pod.status.extended_resource_claim_status) is not None:
        for each in extended.request_mappings:
            use = extended.resource_claim_name, each.request_name
            found.setdefault(each.container_name, []).append(use)
    return found


def claims_beside(pod: Pod, claim: str) -> set[str]:
    """Return the other claims of containers that use `claim`."""
    together = [{name for name, _ in each} for each in uses(pod).values()]
    return {name for names in together if claim in names for name in names} - {claim}


def requests_of(claim: ResourceClaim) -> frozenset[str]:
    """Return the requests of a claim that got devices of this driver."""
    allocation = claim.status.allocation
    return frozenset(
        result.request.partition("/")[0]
        for result in (allocation.devices.results if allocation is not None else ())
        if result.driver == DRIVER
    )


def check(pod: Pod, requests: Mapping[str, Collection[str]]) -> None:
    """Check the containers of a pod; `requests`: those with shares, by the name of the claim.

    Raises:
        GrantError: a container uses several requests.
    """
    for container, used in uses(pod).items():
        found = {
            f"{request} of {claim}"
            for claim, wanted in used
            for request in requests.get(claim, ())
            if wanted in ("", request)
        }
        if len(found) > 1:
            raise GrantError(
                f"container {container} of pod {pod.metadata.name} uses several requests with "
                f"shares of GPUs, and its variables have room for one: {', '.join(sorted(found))}"
            )


def _entries(container: Container) -> Iterator[Use]:
    claims = container.resources.claims if container.resources is not None else None
    for each in claims or ():
        yield each.name, each.request
