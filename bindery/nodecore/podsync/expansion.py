"""References to variables, `$(NAME)`, in commands and values.

Source: the syntax of Kubernetes: `$$` is a dollar sign, and a reference to an unknown variable
stays as it is.
"""

from collections.abc import Mapping


def expand(text: str, *variables: Mapping[str, str]) -> str:
    """Return `text` with the values of its references; earlier mappings come first."""
    parts = []
    position = 0
    while (dollar := text.find("$", position)) >= 0 and dollar + 1 < len(text):
        parts.append(text[position:dollar])
        following = text[dollar + 1]
        end = text.find(")", dollar + 2)
        if following == "$":
            parts.append("$")
            position = dollar + 2
        elif following == "(" and end >= 0:
            name = text[dollar + 2 : end]
            found = (each[name] for each in variables if name in each)
            parts.append(next(found, f"$({name})"))
            position = end + 1
        elif following == "(":
            parts.append("$(")
            position = dollar + 2
        else:
            parts.append(f"${following}")
            position = dollar + 2
    parts.append(text[position:])
    return "".join(parts)


def references(text: str) -> list[str]:
    """Return the names that `text` refers to, in order."""

    class _Noting(dict[str, str]):
        def __contains__(self, name: object) -> bool:
            names.append(str(name))
            return False

    names: list[str] = []
    expand(text, _Noting())
    return names
