"""I1 to I6: all changes of a Statement can be undone completely, and columns stay correct."""

from hypothesis import HealthCheck, settings

from tests.scheduler.statementmachine import StatementMachine
from tests.sizes import examples

TestAnyOperations = StatementMachine.TestCase
TestAnyOperations.settings = settings(
    max_examples=examples(21),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
