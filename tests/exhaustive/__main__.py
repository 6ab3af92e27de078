"""`python -m tests.exhaustive`: compares the scheduler with the exhaustive search, as a table."""

import time
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
import yaml

from tests.exhaustive.compare import Comparison, Outcome, compare
from tests.exhaustive.files import scenario_of
from tests.exhaustive.making import make
from tests.exhaustive.table import ALL, markdown, rows

_PROGRESS_EVERY = 500
_AGREE = (Outcome.EQUAL, Outcome.NO_PLAN)


def main(
    worlds: Annotated[int, typer.Option(help="How many worlds.")] = 10_000,
    first: Annotated[int, typer.Option(help="The seed of the first one.")] = 0,
    show: Annotated[int | None, typer.Option(help="Print the scenario of one seed only.")] = None,
    into: Annotated[Path | None, typer.Option(help="Write worlds that differ here.")] = None,
) -> None:
    """Compare `worlds` worlds; print progress, the worlds that differ, and the table."""
    if show is not None:
        typer.echo(yaml.safe_dump(scenario_of(make(show)), sort_keys=False))
        return
    start, found = time.monotonic(), list[Comparison]()
    for seed in range(first, first + worlds):
        each = compare(make(seed))
        found.append(each)
        if each.outcome not in _AGREE:
            typer.echo(_line(each))
            if into is not None:
                text = yaml.safe_dump(scenario_of(each.world), sort_keys=False)
                (into / f"{seed}.yaml").write_text(text)
        if len(found) % _PROGRESS_EVERY == 0:
            counts = Counter(one.outcome.value for one in found)
            typer.echo(f"{len(found)} worlds, {time.monotonic() - start:.0f} s: {dict(counts)}")
    table = rows(found)
    typer.echo("\n".join(markdown(table)))
    typer.echo(f"fewest if the order of actions did not count: {table[ALL].at_all}")


def _line(each: Comparison) -> str:
    best = each.fewest.evicted if each.fewest is not None else None
    action = each.fewest.action.value if each.fewest is not None else "no plan"
    ours = len(each.played.evicted)
    text = f"seed {each.world.seed}: {each.outcome.value}; {action}: {best}, scheduler: {ours}"
    return f"{text}; {each.why}" if each.why else text


if __name__ == "__main__":
    typer.run(main)
