"""Whatever happens in whatever order, the cache ends where one ends that saw only the outcome."""

from hypothesis import HealthCheck, settings

from tests.scheduler.cachemachine import CacheMachine
from tests.sizes import examples

TestAnyEvents = CacheMachine.TestCase
TestAnyEvents.settings = settings(
    max_examples=examples(60),
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
