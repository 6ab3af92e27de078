"""`bindery scenario run`: runs scenario files and reports the expectations that do not hold.

`bindery.scenario` does the work. A malformed scenario is reported on stderr with its line, and the
others are still run; the exit code is that of the worst result.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from bindery.api.shown import shown
from bindery.api.yamlfile import FileError
from bindery.cli.errors import ExitCode
from bindery.cli.options import command_group
from bindery.scenario.files import read_scenarios, scenario_files
from bindery.scenario.format import Scenario
from bindery.scenario.runner import Result, run

app = command_group("Test a queue policy like code.")


@app.command("run", epilog="Examples: bindery scenario run policy.yaml · … run policies/ --json")
def run_files(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE…", help="Scenario files, or folders: all *.yaml and *.yml below them."
        ),
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a line, one line a scenario.")
    ] = False,
) -> None:
    """Run every scenario of FILE… and compare the result with its expectation.

    Ends with 0 if all expectations hold, 1 if some do not, 2 if a file is malformed or a folder
    holds none.
    """
    results: list[Result] = []
    malformed = 0
    for file, item in _items(paths):
        if isinstance(item, FileError):
            malformed += 1
            typer.echo(str(item), err=True)
            continue
        result = run(item)
        results.append(result)
        for line in result.left_out:
            typer.echo(f"{file}: {line}", err=True)
        if as_json:
            typer.echo(json.dumps(result.to_wire(str(file))))
        else:
            _print(file, result)
    failed = sum(not result.ok for result in results)
    if not as_json:
        parts = [f"{len(results) - failed} ok", f"{failed} failed"]
        parts += [f"{malformed} malformed"] if malformed else []
        typer.echo(", ".join(parts))
    if malformed or failed:
        raise typer.Exit(ExitCode.BAD_INPUT if malformed else ExitCode.FAILURE)


def _items(paths: Iterable[Path]) -> Iterator[tuple[Path, Scenario | FileError]]:
    """Yield each scenario below `paths`, or its error, with its file."""
    for path in paths:
        try:
            files = scenario_files(path)
        except FileError as error:
            yield path, error
            continue
        for file in files:
            for item in read_scenarios(file):
                yield file, item


def _print(file: Path, result: Result) -> None:
    colour = typer.colors.GREEN if result.ok else typer.colors.RED
    word = typer.style("ok" if result.ok else "FAILED", fg=colour)
    cycles = f"{result.cycles} cycle{'' if result.cycles == 1 else 's'}"
    typer.echo(f"{word}  {file}: {shown(result.name) or 'unnamed'} ({cycles})")
    for failure in result.failures:
        typer.echo(f"    {shown(str(failure))}")
