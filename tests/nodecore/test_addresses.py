"""The node's addresses, and the addresses and labels that a cloud provider adds."""

import ipaddress
from collections.abc import Iterable, Iterator
from contextlib import nullcontext

import pytest

from bindery.nodecore.addresses import (
    Address,
    AddressError,
    CloudAddresses,
    CloudNode,
    Instance,
    Lookup,
    Settings,
    addresses,
    annotations,
    cloud_node,
)
from tests.nodecore.kubelettables import Json, cases

SET_BEFORE = Address("InternalIP", "10.1.1.2")


def settings(case: Json, *, is_external: bool = False) -> Settings:
    return Settings("hostname", "hostname", case["node_ips"], is_external)


def listed(found: Iterable[Address]) -> list[list[str]]:
    return [[one.kind, one.address] for one in found]


def nothing(_address: str | None) -> str:
    raise AddressError("not reached")


@cases("addresses", "addresses")
def test_the_node_has_addresses(case: Json) -> None:
    of = settings(case, is_external=case["external"])
    lookup = Lookup(lambda _address: None, lambda _name: (), lambda _family: case["resolved"])
    present = [Address("", "10.1.1.2")] if case["present"] else []

    assert listed(addresses(of, present, lookup)) == case["after"]
    if case["annotations_after"] is not None:
        assert annotations(of, case["annotations"]) == case["annotations_after"]


@cases("addresses", "without_cloud")
def test_configured_addresses_are_checked(case: Json) -> None:
    def check(address: str) -> None:
        ip = ipaddress.ip_address(address)
        if ip.is_loopback or ip.is_multicast:
            raise AddressError("nodeIP can't be that")

    lookup = Lookup(check, lambda _name: (), nothing)
    with pytest.raises(AddressError) if case["refused"] else nullcontext():
        assert listed(addresses(settings(case), (), lookup)) == case["after"]


def test_the_host_name_is_resolved_to_an_address_of_the_preferred_family() -> None:
    found = ["10.0.0.9", "2001:db2::3", "10.0.0.3"]

    def check(address: str) -> None:
        if address == "10.0.0.9":
            raise AddressError("not of this machine")

    lookup = Lookup(check, lambda _name: found, nothing)
    assert addresses(Settings("node", "node"), (), lookup)[0].address == "10.0.0.3"
    assert addresses(Settings("node", "node", ["::"]), (), lookup)[0].address == "2001:db2::3"
    found.pop()
    assert addresses(Settings("node", "node"), (), lookup)[0].address == "2001:db2::3"
    found.clear()
    with pytest.raises(AddressError, match=r"can't get ip address of node node\. error: not"):
        addresses(Settings("node", "node"), (), lookup)
    assert addresses(Settings("node", "10.0.0.4"), (), lookup)[0].address == "10.0.0.4"


def test_the_last_valid_addresses_of_the_provider_are_kept() -> None:
    def answers() -> Iterator[Address]:
        yield SET_BEFORE

    def fails() -> Iterator[Address]:
        raise AddressError("no route")

    cloud = CloudAddresses()
    assert not cloud.is_known
    cloud.poll(fails)
    assert cloud.is_known
    with pytest.raises(
        AddressError, match="failed to get node address from cloud provider: no route"
    ):
        cloud.addresses()
    cloud.poll(answers)
    cloud.poll(fails)
    assert cloud.addresses() == (SET_BEFORE,)


def test_a_node_gets_the_labels_of_its_machine() -> None:
    node = CloudNode("", {"kept": "yes"}, (Address("Hostname", "node"),))
    found = cloud_node(node, Instance("cloud:///id", "big", "zone-a", addresses=(SET_BEFORE,)))

    assert found == CloudNode(
        "cloud:///id",
        {
            "kept": "yes",
            "node.kubernetes.io/instance-type": "big",
            "beta.kubernetes.io/instance-type": "big",
            "topology.kubernetes.io/zone": "zone-a",
            "failure-domain.beta.kubernetes.io/zone": "zone-a",
        },
        (SET_BEFORE,),
    )
    assert cloud_node(found, Instance("other")) == found
