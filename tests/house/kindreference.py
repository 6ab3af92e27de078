"""The page of all kinds and their fields, generated from the declarations.

`make crds` writes it; a test fails when it differs.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from bindery.kube.objects.definitions import KINDS, definition

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "kinds.md"

_HEAD: Final = """# Fields of all kinds

The kinds of the API group `scheduling.bindery.dev`, version `v1alpha1`, with every field.
`kubectl explain KIND.scheduling.bindery.dev.spec` shows the same.
`[]` is each item of a list, and `{}` each value of a map.

This page is generated from the declarations by `make crds`.
"""
_FOOT: Final = "\nNext: [queues for a company](queues-for-a-company.md)\n"
_BOUNDS: Final = (("minimum", "at least"), ("maximum", "at most"), ("maxItems", "items at most"))


def page() -> str:
    """Return the page as Markdown."""
    parts = [_HEAD]
    for kind in KINDS:
        body = definition(kind)["spec"]
        (version,) = body["versions"]
        schema = version["schema"]["openAPIV3Schema"]
        names = body["names"]
        short = ", ".join(f"`{each}`" for each in names.get("shortNames", ()))
        parts.append(f"\n## {names['kind']}\n\n{schema['description']}\n")
        scope = f"{body['scope']}; plural `{names['plural']}`"
        parts.append(f"{scope}{f'; short {short}' if short else ''}.\n")
        for part in ("spec", "status"):
            given = schema["properties"].get(part)
            if given is not None:
                parts.append("\n| Field | Type | Default | Meaning |\n|---|---|---|---|\n")
                parts += _rows(given, part)
    return "".join([*parts, _FOOT])


def _rows(schema: Mapping[str, Any], path: str) -> Iterator[str]:
    needed = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        here = f"{path}.{name}"
        default = "required" if name in needed else _default(field)
        yield f"| `{here}` | {_type(field)} | {default} | {_meaning(field)} |\n"
        yield from _inside(field, here)


def _inside(field: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield the rows of the fields inside a field."""
    yield from _rows(field, path)
    for key, mark in (("items", "[]"), ("additionalProperties", "{}")):
        inner = field.get(key)
        if isinstance(inner, Mapping):
            yield from _inside(inner, path + mark)


def _meaning(field: Mapping[str, Any]) -> str:
    """Return the description of a field, or else that of its items or values."""
    parts = (field, field.get("items"), field.get("additionalProperties"))
    texts = [str(each.get("description", "")) for each in parts if isinstance(each, Mapping)]
    return " ".join(next(filter(None, texts), "").split()).replace("|", "\\|")


def _default(field: Mapping[str, Any]) -> str:
    return f"`{json.dumps(field['default'])}`" if "default" in field else ""


def _type(field: Mapping[str, Any]) -> str:
    if "enum" in field:
        return ", ".join(f"`{each}`" for each in field["enum"])
    if field.get("x-kubernetes-int-or-string"):
        return "quantity"
    bounds = [f"{word} {field[key]}" for key, word in _BOUNDS if key in field]
    if "items" in field:
        name = f"list of {field['items'].get('type', 'values')}s"
    elif isinstance(field.get("additionalProperties"), Mapping):
        name = "map"
    else:
        name = str(field.get("type", "any"))
    return ", ".join([name, *bounds])


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
