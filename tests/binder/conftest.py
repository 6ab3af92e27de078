"""What the binder's tests share."""

import pytest
import structlog


@pytest.fixture(autouse=True, scope="session")
def quiet_logs() -> None:
    """Keep thousands of generated outcomes out of the report of a failing test."""
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
