"""The page of nodecore's signatures, generated from the source.

`make crds` writes it; a test fails when it differs. Each module has its functions with types and
errors, its data classes with what their fields mean, and its type aliases.
"""

import ast
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCE: Final = ROOT / "bindery" / "nodecore"
PAGE: Final = ROOT / "docs" / "nodecore-reference.md"

_HEAD: Final = """# Signatures of nodecore

All modules of `bindery.nodecore` with their functions, classes and types.
[What a node decides](nodecore.md) shows the kubelet's counterpart of each, with examples.
A name on that page such as `cpu.packed.take_packed` is `bindery.nodecore.cpu.packed.take_packed`.

Sets of NUMA nodes are bit masks (`int`), sets of CPUs `CpuSet` (`frozenset[int]`).
CPU is in millicores, memory in bytes, devices are counted.

This page is generated from the source by `make crds`.
"""
_FOOT: Final = "\nNext: [the node agent](node-agent.md)\n"
_SECTIONS: Final = ("Args", "Attributes", "Raises")
Documented = ast.Module | ast.ClassDef | ast.FunctionDef


def page() -> str:
    """Return the page as Markdown."""
    return "".join([_HEAD, *(_module(path) for path in sorted(SOURCE.rglob("*.py"))), _FOOT])


def _module(path: Path) -> str:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    lines = [line for node in _public(tree.body) for line in _entry(node)]
    lines = [*_aliases(tree.body), *lines]
    if not lines:
        return ""
    parts = path.relative_to(ROOT).with_suffix("").parts
    name = ".".join(part for part in parts if part != "__init__")
    return "\n".join([f"\n## {name}\n", f"{_summary(tree)}\n", *lines, ""])


def _public(body: Sequence[ast.stmt]) -> Iterator[ast.ClassDef | ast.FunctionDef]:
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            yield node


def _aliases(body: Sequence[ast.stmt]) -> Iterator[str]:
    """Yield the names of types, and other names that have a description below them."""
    for node, after in zip(body, [*body[1:], ast.Pass()], strict=True):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        name = ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)
        is_described = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        if name.startswith("_") or not (is_described or name[1:].lower() == name[1:]):
            continue
        text = f"- `{name} = {ast.unparse(node.value)}`"
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            text += ": " + str(after.value.value).replace("\n", " ")
        yield text


def _entry(node: ast.ClassDef | ast.FunctionDef) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef):
        yield f"- `{node.name}{_signature(node)}`: {_described(node)}"
        return
    yield f"- class `{node.name}{_construction(node)}`: {_described(node)}"
    meanings = _section(node, "Attributes") or _section(node, "Args")
    yield from (f"  - {meaning}" for meaning in meanings)
    yield from (f"  - `{member}`" for member in _members(node))
    for method in _public(node.body):
        assert isinstance(method, ast.FunctionDef), method.name
        is_property = any("property" in ast.unparse(one) for one in method.decorator_list)
        shown = f": {_type(method.returns)}" if is_property else _signature(method)
        yield f"  - `.{method.name}{shown}`: {_described(method)}"


def _construction(node: ast.ClassDef) -> str:
    """Return how the class is made: its initialiser, or the fields of a data class."""
    for method in node.body:
        if isinstance(method, ast.FunctionDef) and method.name == "__init__":
            return _signature(method, returns=False)
    bases = [ast.unparse(base) for base in node.bases]
    if any("dataclass" in ast.unparse(one) for one in node.decorator_list):
        fields = [one for one in node.body if isinstance(one, ast.AnnAssign)]
        return f"({', '.join(map(_field, fields))})"
    return f"({', '.join(bases)})" if bases else ""


def _field(node: ast.AnnAssign) -> str:
    text = ast.unparse(node.target) + f": {_type(node.annotation)}"
    if node.value is None:
        return text
    default = ast.unparse(node.value)
    return f"{text} = {'…' if default.startswith('field(') else default}"


def _members(node: ast.ClassDef) -> Iterator[str]:
    """Yield the members of an enumeration, with their values."""
    if not any("Enum" in ast.unparse(base) for base in node.bases):
        return
    for one in node.body:
        if isinstance(one, ast.Assign):
            yield ast.unparse(one)


def _signature(node: ast.FunctionDef, *, returns: bool = True) -> str:
    arguments = node.args
    if arguments.args and arguments.args[0].arg in ("self", "cls"):
        arguments.args = arguments.args[1:]
    text = f"({ast.unparse(arguments)})"
    return f"{text} -> {_type(node.returns)}" if returns else text


def _type(node: ast.expr | None) -> str:
    return "None" if node is None else ast.unparse(node).replace("'", "")


def _described(node: Documented) -> str:
    """Return the first sentences of the description, and the errors."""
    errors = [line.partition(":")[0] for line in _section(node, "Raises")]
    raised = f" Raises {', '.join(f'`{one}`' for one in errors)}." if errors else ""
    return _summary(node) + raised


def _summary(node: Documented) -> str:
    return (ast.get_docstring(node) or "").partition("\n\n")[0].replace("\n", " ")


def _section(node: Documented, title: str) -> list[str]:
    """Return the entries of a section of the description, each in one line."""
    entries: list[str] = []
    inside = False
    for line in (ast.get_docstring(node) or "").splitlines():
        if line.strip().removesuffix(":") in _SECTIONS:
            inside = line.strip() == f"{title}:"
        elif inside and line.startswith("        "):
            entries[-1] += f" {line.strip()}"
        elif inside and line.startswith("    "):
            entries.append(line.strip())
    return entries


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
