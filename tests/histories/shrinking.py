"""Makes a history that fails smaller: gangs, faults and acts go, as long as it still fails."""

from tests.histories.history import REST_WITHIN_S, Played, play


def shrunk(failed: Played, rest_within_s: float = REST_WITHIN_S) -> Played:
    """Return a failing history of which no single part can be taken out."""
    part = needed = 0  # `needed`: parts that were tried since one was taken out
    while needed < failed.plan.parts():
        part %= failed.plan.parts()
        smaller = play(failed.plan.without(part), rest_within_s)
        if smaller.problem:
            failed, needed = smaller, 0
        else:
            part, needed = part + 1, needed + 1
    return failed
