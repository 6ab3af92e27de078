"""Fixtures of the command line's tests."""

import pytest
from commandline import CommandLine


@pytest.fixture
def command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    """`bindery` in this process."""
    return CommandLine(monkeypatch, capsys)
