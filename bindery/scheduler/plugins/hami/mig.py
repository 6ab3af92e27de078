"""Chooses profile and place of MIG instances on a card (HAMi v2.10.0).

`checks` calls it. Pure; existing instances are never moved.
"""

from collections.abc import Sequence

from bindery.api.hami.nodedevices import MigPlacement, MigProfile, NodeDevice

_HIGH_FIRST = ("1g", "3g")
"""These profiles are placed high, because large profiles must begin at low slices."""


def choose(
    device: NodeDevice,
    memory_mib: int,
    taken: Sequence[MigPlacement],
    preferred: Sequence[str],
) -> tuple[MigProfile, MigPlacement] | None:
    """Return profile and place for an instance of at least `memory_mib`; None if none fits.

    Profiles in `preferred` come first, in its order; an entry is a name, or the part before the
    point. Then the smallest profile is chosen.
    """
    for profile in _candidates(device.mig_profiles, preferred):
        if profile.memory_mib < memory_mib:
            continue
        place = _place(profile, taken)
        if place is not None:
            return profile, place
    return None


def _candidates(profiles: Sequence[MigProfile], preferred: Sequence[str]) -> list[MigProfile]:
    by_size = sorted(profiles, key=lambda each: (each.memory_mib, each.slice_count, each.name))
    wanted = [
        profile
        for entry in preferred
        for profile in by_size
        if entry in (profile.name, _slices(profile))
    ]
    return list(dict.fromkeys([*wanted, *by_size]))  # each profile once, at its first place


def _place(profile: MigProfile, taken: Sequence[MigPlacement]) -> MigPlacement | None:
    free = [
        place for place in profile.placements if not any(place.overlaps(other) for other in taken)
    ]
    if not free:
        return None
    return max(free) if _slices(profile) in _HIGH_FIRST else min(free)


def _slices(profile: MigProfile) -> str:
    return profile.name.partition(".")[0]
