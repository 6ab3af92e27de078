"""Histories that hurt others: what other schedulers lost, played here over several seeds of chance.

    def test_…(seed: int) -> None:
        async def people(world: KnownWorld) -> None: ...
        history = KnownHistory(plan(seed, nodes=1), people)
        history.expect()

`people` is what happens; the plan has neither faults nor gangs of its own. The invariants of all
histories apply, and each test asserts beside them what the others lost.
"""
