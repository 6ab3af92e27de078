"""After any events in any order, the cache equals one that saw only the final objects."""

from hypothesis import HealthCheck, settings

from tests.scheduler.cachemachine import CacheMachine
from tests.sizes import examples

TestAnyEvents = CacheMachine.TestCase
TestAnyEvents.settings = settings(
    max_examples=examples(21),
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
