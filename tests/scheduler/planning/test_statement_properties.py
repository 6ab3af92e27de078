"""I1 to I6: whatever is done in Statements can be undone without a trace, and columns stay true."""

from hypothesis import HealthCheck, settings

from tests.scheduler.statementmachine import StatementMachine
from tests.sizes import examples

TestAnyOperations = StatementMachine.TestCase
TestAnyOperations.settings = settings(
    max_examples=examples(60),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
