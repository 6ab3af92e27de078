"""The command line in this process: as a user calls it, but without starting Python each time."""

import sys
from dataclasses import dataclass

import pytest

from bindery.cli.main import main


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


class CommandLine:
    """Runs commands with an environment of their own; output is no terminal."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, captured: pytest.CaptureFixture[str]
    ) -> None:
        self._monkeypatch = monkeypatch
        self._captured = captured

    def __call__(self, *arguments: str, columns: int = 100) -> Done:
        """Run `bindery` with `arguments`."""
        self._captured.readouterr()
        with self._monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["bindery", *arguments])
            # Else help names the module with which Python was started, such as `pytest`.
            patch.setattr(sys.modules["__main__"], "__package__", None)
            patch.setenv("COLUMNS", str(columns))
            try:
                main()
                code: object = 0
            except SystemExit as end:
                code = end.code
        out, err = self._captured.readouterr()
        return Done(code if isinstance(code, int) else int(code is not None), out, err)
