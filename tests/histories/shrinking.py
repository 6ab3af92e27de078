"""Makes a history that fails smaller: gangs, faults and acts go, as long as it still fails."""

from tests.histories.history import REST_WITHIN_S, Played, play


def shrunk(failed: Played, rest_within_s: float = REST_WITHIN_S) -> Played:
    """Return a failing history of which no single part can be taken out."""
    part = 0
    while part < failed.plan.parts():
        smaller = play(failed.plan.without(part), rest_within_s)
        if smaller.problem:
            failed = smaller
        else:
            part += 1
    return failed
