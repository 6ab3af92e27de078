"""Reads the cluster that a command asks about: a live one, or that of a scenario.

What reads a live cluster, and what reads scenarios, is imported when it is needed: each takes a
third of a second.
"""

from dataclasses import replace

import typer

from bindery.answers.source import Source
from bindery.cli.importing import importing
from bindery.cli.options import Origin


def of_pool(context: typer.Context, origin: Origin, source: Source, node_pool: str) -> Source:
    """Return `source` for the scheduler of `node_pool`, with that scheduler's configuration.

    `origin`: what `source` was read from.
    """
    if source.configuration.node_pool == node_pool:
        return source
    if origin.file is not None:
        return source.in_pool(node_pool)
    from bindery.cli.reading.livesource import read_for_pool

    return read_for_pool(context, replace(origin, node_pool=node_pool), source)


def read_source(context: typer.Context, origin: Origin, *, with_jobs: bool = False) -> Source:
    """Return what `origin` names, read once; of a cluster also its Jobs if asked `with_jobs`.

    Raises:
        FileError: a file cannot be used.
        KubeError: the cluster does not answer, or refuses.
    """
    if origin.file is not None:
        with importing():
            from bindery.cli.reading.scenariosource import read_scenario_source

        return read_scenario_source(origin.file, origin)
    with importing():
        from bindery.cli.reading.livesource import read_live_source

    return read_live_source(context, origin, with_jobs=with_jobs)
