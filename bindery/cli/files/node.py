"""`bindery node check`: verifies, shows, compares and converts checkpoint files of a kubelet.

The files are only read; a converted one is written to the file of `--to`. Called by the `bindery`
command; `bindery.nodecore.checkpointfiles` knows the formats.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from bindery.api.shown import shown
from bindery.cli.errors import CommandError, ExitCode
from bindery.cli.options import command_group
from bindery.cli.tables import Column, print_table
from bindery.nodecore import checkpointfiles
from bindery.nodecore.checkpointfiles import Entry, FileContent
from bindery.nodecore.errors import CheckpointError, CorruptCheckpointError

app = command_group("Shows and checks files that a kubelet has written.")

_NAMES = tuple(checkpointfiles.CheckpointKind)
_PLACES = ("", "device-plugins/", "*/", "*/device-plugins/")
"""Locations of checkpoints below a kubelet's directory, or below a directory of several nodes."""
_COLUMNS = [
    Column("POD", "pod"),
    Column("CONTAINER", "container"),
    Column("RESOURCE", "resource"),
    Column("VALUE", "value"),
]


@app.command()
def check(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Checkpoint files, or a kubelet's directory."),
    ],
    compare: Annotated[
        bool, typer.Option("--compare", help="Show only how the second file differs.")
    ] = False,
    convert_to: Annotated[
        int | None,
        typer.Option(
            min=1, max=3, metavar="VERSION", help="Convert a file of the CPU or memory manager."
        ),
    ] = None,
    containers: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help='For version 1: JSON {"container id": ["pod UID", "container name"]}.',
        ),
    ] = None,
    to: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the converted file goes.")
    ] = None,
) -> None:
    """Verify checkpoint files of a kubelet and show what stands in them.

    The exit code is 1 if a checksum is wrong, a file contradicts itself, or two files differ.

    Examples:
      bindery node check /var/lib/kubelet
      bindery node check /var/lib/kubelet/cpu_manager_state
      bindery node check --compare before/memory_manager_state after/memory_manager_state
      bindery node check --convert-to 2 --to new cpu_manager_state
    """
    if convert_to is not None:
        _convert(files, convert_to, containers, to)
    elif compare:
        _compare(files)
    elif not all([_show(path) for path in _expanded(files)]):  # noqa: C419  every file is shown
        raise typer.Exit(ExitCode.FAILURE)


def _expanded(paths: Sequence[Path]) -> list[Path]:
    """Return the files; a directory stands for the checkpoints of a kubelet, or of several."""
    files: list[Path] = []
    for path in paths:
        found = (file for place in _PLACES for name in _NAMES for file in path.glob(place + name))
        listed = sorted(found) if path.is_dir() else [path]
        if not listed:
            raise CommandError(f"{path}: no checkpoint of a kubelet is in it", ExitCode.BAD_INPUT)
        files += listed
    return files


def _show(path: Path) -> bool:
    """Print the file; return whether it is intact."""
    try:
        content = checkpointfiles.read(_bytes(path))
    except CheckpointError as error:
        typer.echo(shown(f"{path}: {_error_text(error)}"))
        return False
    state = "intact" if not content.findings else "contradicts itself"
    typer.echo(
        shown(
            f"{path}: {content.kind}, version {content.version}, policy {content.policy}, {state}"
        )
    )
    for finding in content.findings:
        typer.echo(shown(f"  {finding}"))
    print_table(_COLUMNS, [_row(entry) for entry in content.entries], "Nothing stands in it.")
    return not content.findings


def _compare(files: Sequence[Path]) -> None:
    if len(files) != 2:
        raise CommandError("--compare takes two files", ExitCode.BAD_INPUT)
    before, after = (_content(path) for path in files)
    if before.kind != after.kind:
        raise CommandError(
            f"{files[0]} is a {before.kind} and {files[1]} a {after.kind}: they cannot be compared",
            ExitCode.BAD_INPUT,
        )
    rows = [
        {"change": "-", **_row(entry)} for entry in before.entries if entry not in after.entries
    ]
    rows += [
        {"change": "+", **_row(entry)} for entry in after.entries if entry not in before.entries
    ]
    if before.policy != after.policy:
        typer.echo(shown(f"policy: {before.policy} before, {after.policy} after"))
    rows.sort(key=lambda row: (row["pod"], row["container"], row["resource"], row["change"]))
    print_table([Column("", "change"), *_COLUMNS], rows, "The files have the same content.")
    if rows or before.policy != after.policy:
        raise typer.Exit(ExitCode.FAILURE)


def _convert(files: Sequence[Path], version: int, containers: Path | None, to: Path | None) -> None:
    if len(files) != 1 or to is None:
        raise CommandError("--convert-to takes one file, and --to FILE", ExitCode.BAD_INPUT)
    kind = _content(files[0]).kind
    versions = checkpointfiles.VERSIONS.get(kind, ())
    if version not in versions:
        listed = ", ".join(map(str, versions)) or "none to choose from"
        raise CommandError(f"{files[0]} is a {kind}; its versions: {listed}", ExitCode.BAD_INPUT)
    try:
        blob = checkpointfiles.convert(_bytes(files[0]), version, _ids(containers))
    except CheckpointError as error:
        raise CommandError(f"{files[0]}: {_error_text(error)}") from error
    to.write_bytes(blob)
    typer.echo(shown(f"{to} has the content of {files[0]} in version {version}"))


def _content(path: Path) -> FileContent:
    try:
        return checkpointfiles.read(_bytes(path))
    except CheckpointError as error:
        raise CommandError(f"{path}: {_error_text(error)}") from error


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}", ExitCode.BAD_INPUT) from error


def _ids(path: Path | None) -> dict[str, tuple[str, str]]:
    if path is None:
        return {}
    try:
        found = json.loads(_bytes(path))
        return {key: (str(pod), str(container)) for key, (pod, container) in found.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise CommandError(
            f'{path}: not of the form {{"container id": ["pod UID", "container name"]}}',
            ExitCode.BAD_INPUT,
        ) from error


def _error_text(error: CheckpointError) -> str:
    if isinstance(error, CorruptCheckpointError):
        return f"{error}: the file has {error.stored}, its content gives {error.actual}"
    return str(error)


def _row(entry: Entry) -> dict[str, str]:
    return {
        "pod": entry.pod,
        "container": entry.container,
        "resource": entry.resource,
        "value": entry.value,
    }
