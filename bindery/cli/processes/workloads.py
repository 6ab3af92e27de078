"""Shows the rows of the grouper, and the PodGroups for manifests. Called by `grouper`."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

from bindery.api import yamlfile
from bindery.api.yamlfile import Document, FileError
from bindery.cli.errors import CommandError, ExitCode
from bindery.cli.options import Format
from bindery.cli.tables import Column, print_list, print_table
from bindery.grouper.controllers.trial import try_out
from bindery.grouper.table import karta
from bindery.grouper.table.facts import mapping
from bindery.grouper.table.loading import Table, table_of
from bindery.grouper.table.rows import Row

_COLUMNS = (
    Column("KIND", "kind"),
    Column("GROUP", "group"),
    Column("MINIMUM", "minimum"),
    Column("STAGES", "stages"),
    Column("CLASS", "class"),
)


def show_rows(table: Table, output: Format) -> None:
    """Print the rows of `table`."""
    if not print_list([row.to_wire() for row in table], output):
        print_table(_COLUMNS, [described(row) for row in table], "There are no rows.")


def described(row: Row) -> dict[str, str]:
    """Return the columns of the table for a row."""
    is_wrapper = row.pass_to is not None
    return {
        "kind": row.kind if row.match.label is None else f"{row.kind} with {row.match.label}",
        "group": _group(row),
        "minimum": "" if is_wrapper else _minimum(row),
        "stages": ", ".join(_stages(row)),
        "class": "" if is_wrapper else row.workload_class.value,
    }


def show_plan(files: Sequence[Path], table: Table) -> ExitCode:
    """Print the PodGroups that the manifests in `files` become, and problems on stderr.

    Raises:
        FileError: a file cannot be read.
    """
    documents = [document for file in files for document in yamlfile.read(file)]
    items = [item for document in documents for item in _items(document)]
    tried = try_out(items, table)
    found = tried.plan
    written = [group.to_object() for group in found.groups]
    sys.stdout.write(yaml.safe_dump_all(written, sort_keys=False, width=100) if written else "")
    for problem in found.problems:
        kind = "warning" if problem.is_warning else "note"
        sys.stderr.write(f"{kind}: {problem.object} {problem.reason}: {problem.message}\n")
    for wanted in found.wanted:
        sys.stderr.write(f"warning: {wanted.kind}/{wanted.name} is not in the files: add it\n")
    for reference, why in tried.unknown:
        sys.stderr.write(f"note: the pods of {reference} are not known: {why}\n")
    return ExitCode.OK if found.groups else ExitCode.FAILURE


def show_imported(file: Path) -> None:
    """Print the rows for the Karta objects in `file`, and the omissions on stderr.

    Raises:
        FileError: `file` has no Karta object, or an object that cannot be converted.
    """
    rows = []
    for document in yamlfile.read(file):
        if not karta.is_karta(document):
            continue
        try:
            converted = karta.convert(mapping(document.data))
        except karta.KartaError as error:
            raise document.error((), str(error)) from error
        rows.append(converted.row)
        kind = converted.row["match"]["kind"]
        for note in converted.notes:
            sys.stderr.write(f"warning: {kind}: {note}\n")
    if not rows:
        raise CommandError(f"{file} has no object of kind {karta.KIND}", ExitCode.BAD_INPUT)
    content = {
        "apiVersion": "scheduling.bindery.dev/v1alpha1",
        "kind": "GrouperTable",
        "rows": rows,
    }
    text = yaml.safe_dump(content, sort_keys=False, width=100)
    table_of(yamlfile.parse(text, str(file)))  # checks that the printed rows can be used
    sys.stdout.write(text)


def _items(document: Document) -> Iterator[dict[str, object]]:
    """Yield the objects of a document; of a List, its items."""
    data = document.data
    if not isinstance(data, dict) or not isinstance(data.get("kind"), str):
        raise FileError(document.file, document.line(()), "this is no Kubernetes object")
    if data["kind"].endswith("List") and isinstance(data.get("items"), list):
        yield from (each for each in data["items"] if isinstance(each, dict))
    else:
        yield data


def _group(row: Row) -> str:
    if row.pass_to is not None:
        to = row.pass_to
        if to.object is not None:
            return f"{to.object.kind} named by {to.object.label}"
        return to.kind or ("pod" if to.pod else "owner below")
    if row.per is not None:
        return "independent pods" if row.per.pod else f"value of {row.per.label}"
    return row.match.kind


def _minimum(row: Row) -> str:
    if row.per is not None and row.per.pod:
        return "0"
    texts = [text.strip("`") if text.strip("`").isdigit() else text for text in row.min]
    if row.roles:
        texts.append("sum of roles")
    elif not row.min:
        texts.append("all pods that are left" if row.left else "all pods")
    return ", else ".join(texts)


def _stages(row: Row) -> Iterator[str]:
    for role in row.roles:
        name = role.name if role.each is None else f"each of {role.each}"
        for after in role.after:
            before = "its dependencies" if after.each else after.role or "the roles above"
            condition = (
                after.condition if "{" not in after.condition else "the condition that they name"
            )
            yield f"{name} after {before} ({condition})"
        if role.children is not None and role.children.lead is not None:
            yield f"first pod of {name} ({role.children.lead.condition.value})"
