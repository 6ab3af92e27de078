"""The table of the components. Called by `status`."""

from collections.abc import Iterator, Sequence
from typing import Final

from bindery.answers.components import ComponentState, component_row
from bindery.answers.rows import Row
from bindery.cli.options import Format
from bindery.cli.tables import Column, print_lines, print_list, print_table

_COLUMNS: Final = (
    Column("COMPONENT", "component"),
    Column("STATE", "state"),
    Column("LEADS FOR", "leadsFor"),
    Column("RENEWED", "renewedAgo"),
    Column("HOLDER", "holder"),
)


def show(found: Sequence[ComponentState], output: Format) -> None:
    """Print `found` as a table, JSON or YAML."""
    rows = [component_row(each) for each in found]
    if not print_list(rows, output):
        print_table(_COLUMNS, rows, "")
        print_lines(line for row in rows for line in _lines(row))


def _lines(row: Row) -> Iterator[str]:
    """Yield the lines about a component below the table."""
    if row["detail"]:
        yield f"{row['component']}: {row['detail']}"
    configuration = row["configuration"]
    if not isinstance(configuration, dict):
        return
    changes = configuration["changes"]
    if changes is None:
        values = "too large to be published"
    elif changes:
        values = f"differs from the defaults in {', '.join(changes)}"
    else:
        values = "the defaults"
    yield (
        f"{row['component']}: bindery {row['version']}, "
        f"configuration {configuration['hash']} ({values})"
    )
    if configuration["problem"]:
        yield (
            f"{row['component']}: a later change of its file cannot be used: "
            f"{configuration['problem']}"
        )
