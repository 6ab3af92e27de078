"""Renewal of the webhook's certificates; the served certificate is always trusted."""

from collections.abc import Iterator

import pytest
from cryptography import x509

from bindery.binder.webhook.certificates import Bundle, Lifetimes, next_check_s, renewed

HOSTS = ("bindery-webhook.bindery-system.svc", "127.0.0.1")
DAY = 86400.0
TIMES = Lifetimes(authority_s=30 * DAY, certificate_s=3 * DAY, overlap_s=600.0)
START = 1_800_000_000.0


def made(now_s: float = START) -> Bundle:
    return renewed(Bundle.of({}), HOSTS, TIMES, now_s)


def life(days: float) -> Iterator[tuple[float, Bundle]]:
    """Yield time and bundle at each check, as the process would look."""
    now, bundle = START, made()
    while now < START + days * DAY:
        yield now, bundle
        now += max(1.0, next_check_s(bundle, TIMES, now))
        bundle = renewed(bundle, HOSTS, TIMES, now)


def test_nothing_changes_before_it_is_due() -> None:
    bundle = made()

    assert renewed(bundle, HOSTS, TIMES, START + 2 * DAY - 60) == bundle


def test_a_certificate_is_renewed_after_two_thirds_by_the_same_authority() -> None:
    bundle = made()
    later = renewed(bundle, HOSTS, TIMES, START + 2 * DAY + 60)

    assert later.certificate != bundle.certificate
    assert later.authorities == bundle.authorities


def test_a_new_authority_is_published_for_the_overlap_before_it_signs() -> None:
    known_since: dict[bytes, float] = {}
    for now, bundle in life(90):
        certificate = x509.load_pem_x509_certificate(bundle.certificate.encode())
        authorities = x509.load_pem_x509_certificates(bundle.authorities.encode())
        for each in authorities:
            known_since.setdefault(each.subject.public_bytes(), now)
        signer = next(each for each in authorities if each.subject == certificate.issuer)
        certificate.verify_directly_issued_by(signer)
        assert certificate.not_valid_after_utc.timestamp() > now
        assert signer.not_valid_after_utc.timestamp() > now
        since = known_since[signer.subject.public_bytes()]
        assert since == START or now - since >= TIMES.overlap_s
        assert len(authorities) <= 3
    assert len(known_since) >= 4


def test_a_long_time_needs_few_renewal_steps() -> None:
    assert sum(1 for _ in life(90)) < 200


def test_other_hosts_require_a_new_certificate_at_once() -> None:
    bundle = made()
    other = renewed(bundle, ("elsewhere",), TIMES, START + 60)

    assert other.certificate != bundle.certificate
    assert other.authorities == bundle.authorities


@pytest.mark.parametrize("part", ["authorities", "authority_key", "certificate", "key"])
@pytest.mark.parametrize("text", ["", "no pem"])
def test_a_damaged_bundle_is_replaced(part: str, text: str) -> None:
    bundle = made()
    damaged = Bundle(**{**vars(bundle), part: text})
    healed = renewed(damaged, HOSTS, TIMES, START + 60)

    assert healed.certificate != bundle.certificate
    assert renewed(healed, HOSTS, TIMES, START + 120) == healed


def test_a_key_of_another_certificate_is_detected() -> None:
    bundle, other = made(), made()
    mixed = Bundle(bundle.authorities, bundle.authority_key, bundle.certificate, other.key)

    assert renewed(mixed, HOSTS, TIMES, START + 60).authorities != bundle.authorities


def test_an_expired_certificate_is_replaced() -> None:
    bundle = made()

    assert renewed(bundle, HOSTS, TIMES, START + 4 * DAY).authorities != bundle.authorities
