from ipaddress import IPv4Network

import pytest

from bindery.nodeagent.addresses import AddressPool, NoAddressLeftError

SIX_ADDRESSES = IPv4Network("10.0.0.0/29")


def test_pods_keep_their_addresses_and_no_two_pods_share_one() -> None:
    pool = AddressPool()

    taken = {uid: pool.take(uid) for uid in ("a", "b", "c")}

    assert len(set(taken.values())) == 3
    assert pool.take("b") == taken["b"]


def test_an_address_in_use_by_a_pod_is_not_assigned_to_another() -> None:
    pool = AddressPool(SIX_ADDRESSES)
    pool.reserve("old", "10.0.0.1")

    assert pool.take("new") != "10.0.0.1"
    assert pool.take("old") == "10.0.0.1"


def test_a_released_address_is_reused_when_all_others_are_in_use() -> None:
    pool = AddressPool(SIX_ADDRESSES)
    taken = {str(number): pool.take(str(number)) for number in range(6)}

    with pytest.raises(NoAddressLeftError):
        pool.take("one more")
    pool.release("3")

    assert pool.take("one more") == taken["3"]


def test_releasing_a_pod_with_a_shared_address_leaves_it_to_its_holder() -> None:
    pool = AddressPool(SIX_ADDRESSES)
    pool.reserve("holder", "10.0.0.1")
    pool.reserve("other", "10.0.0.1")
    pool.release("other")

    assert pool.take("holder") == "10.0.0.1"
    assert pool.take("new") == "10.0.0.2"


def test_agents_without_contact_assign_different_addresses_on_their_nodes() -> None:
    claimed, inference = AddressPool(), AddressPool()

    given = {claimed.take(f"a{number}", "claimed-0") for number in range(100)}
    given |= {inference.take(f"b{number}", "hami-1") for number in range(100)}

    assert len(given) == 200
