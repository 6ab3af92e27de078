"""An answer as the text of a JSON or YAML document."""

import json

import yaml

from bindery.answers.wire import to_wire
from bindery.api.shown import shown


def dump(value: object, form: str) -> str:
    """Return `value` as the text of a document; `form`: json or yaml."""
    wire = to_wire(value)
    if form == "json":
        return json.dumps(wire, indent=2) + "\n"
    text = str(yaml.safe_dump(wire, sort_keys=False, allow_unicode=True, width=120))
    if shown(text, len(text), keep="\n") == text:
        return text
    return str(yaml.safe_dump(wire, sort_keys=False, allow_unicode=False, width=120))
