"""Modules, functions, plugins, files and make targets in module docstrings exist.

A pointer is a path that ends in `.py` or a name in backticks. It is looked up from the module
outwards: in the module itself, among what the modules beside it define, then as a module or package
in its own folder and in each folder above it, as an import would find it.
"""

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from bindery.scheduler.actions.registry import ACTIONS

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted(p for folder in ("bindery", "devcluster") for p in (ROOT / folder).rglob("*.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
GROUPS = PROJECT["entry-points"]
CONFIGURED = {*GROUPS, *(name for group in GROUPS.values() for name in group), *ACTIONS}
"""Plugins, the groups of their entry points, and actions: names in the configuration."""
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

IN_BACKTICKS = re.compile(r"`([^`]+)`")
FILE = re.compile(r"(?<![\w./])[\w/]+\.py\b")
NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
USERS = re.compile(r"Used by ([^.;]+(?:\.py)?[^.;]*)")
MAKE = re.compile(r"make ([a-z-]+)")
FIELD = re.compile(r"[a-z]+([A-Z][a-z]*)+|(status|spec|device|limits)\..*")
"""A field of an object of the API: camelCase, or a path to one."""

OF_OTHERS = {
    # Kubernetes' Go packages, types and functions; fields and files
    *("Allocate", "Config", "FindMatchingVolume", "IsForPod", "Name", "Unreserve", "go.sum"),
    *("metav1.Time", "nodevolumelimits", "resource.Quantity", "v1.NodeSelector", "volumebinding"),
    *("kubernetes.aio.leaderelection", "storage.k8s.io"),
    *("resourcetype",),  # a plugin of KAI-Scheduler
    *("a", "n"),  # of a formula
    *("bindery_events_dropped_total",),  # a series: prometheus_client adds `_total`
    *("br", "make", "pg"),  # words that people type
}
"""Names in backticks that lead nowhere in this package, and should not."""


def test_every_reference_in_a_module_docstring_resolves() -> None:
    broken = {str(path.relative_to(ROOT)): list(unresolved(path)) for path in MODULES}

    assert {path: pointers for path, pointers in broken.items() if pointers} == {}


def test_documented_users_of_a_module_import_it() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {user} does not import it"
        for path in MODULES
        for statement in USERS.findall(docstring_of(path))
        for user in (*IN_BACKTICKS.findall(statement), *FILE.findall(statement))
        for module in modules(user.removesuffix(".py"), path)
        if not imports(module, path)
    ]

    assert wrong == []


def test_a_broken_reference_is_detected(tmp_path: Path) -> None:
    lying = tmp_path / "lying.py"
    lying.write_text('"""Called by `nobody` and gone.py, after `make nonsense`."""\n')

    assert list(unresolved(lying)) == ["nobody", "gone.py", "make nonsense"]


def unresolved(path: Path) -> Iterator[str]:
    """Yield the pointers of a module's docstring that lead nowhere."""
    docstring = docstring_of(path)
    pointers = IN_BACKTICKS.findall(docstring)
    for name in pointers:
        if NAME.fullmatch(name) and not name.endswith(".py") and not resolves(name, path):
            yield name
    yield from (file for file in FILE.findall(docstring) if not is_file(file, path))
    yield from (f"make {m}" for m in MAKE.findall("\n".join(pointers)) if m not in TARGETS)
    for page in pointers:
        if page.startswith("docs/") and not (ROOT / page).exists():
            yield page


def resolves(pointer: str, path: Path) -> bool:
    """Return whether a name in backticks leads to anything, seen from the module at `path`."""
    if pointer in OF_OTHERS | CONFIGURED or FIELD.fullmatch(pointer):
        return True
    parts = pointer.split(".")
    if set(parts) <= names_of(path) or parts[0] in defined_beside(path):
        return True
    return any(leads(folder, parts) for folder in folders(path))


def leads(folder: Path, parts: list[str]) -> bool:
    """Return whether `parts` are packages, then at most one module, then names in it."""
    if not parts:
        return True
    first, *more = parts
    if (folder / first).is_dir() and leads(folder / first, more):
        return True
    module = folder / f"{first}.py"
    return module.is_file() and set(more) <= names_of(module)


def is_file(pointer: str, path: Path) -> bool:
    return any((folder / pointer).is_file() for folder in folders(path))


def folders(path: Path) -> list[Path]:
    """Return the folder of a module and those above it, up to the root of the repository."""
    return [folder for folder in path.parents if folder.is_relative_to(ROOT)]


def modules(pointer: str, path: Path) -> list[Path]:
    """Return the module that a name of a user means: the nearest one, or none."""
    places = (folder / f"{pointer}.py" for folder in folders(path))
    return [place for place in places if place.is_file()][:1]


def imports(importer: Path, imported: Path) -> bool:
    """Return whether one module imports another, or something of it."""
    name = ".".join(imported.relative_to(ROOT).with_suffix("").parts)
    found: set[str] = set()
    for node in ast.walk(tree_of(importer)):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return name in found


def defined_beside(path: Path) -> set[str]:
    """Return the classes and functions of the modules in the folder of `path`."""
    return {
        node.name
        for module in path.parent.glob("*.py")
        for node in tree_of(module).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }


@cache
def names_of(path: Path) -> set[str]:
    """Return what a module defines or uses: names, attributes, parameters and exact strings."""
    attributes = ("name", "id", "attr", "arg")
    nodes = list(ast.walk(tree_of(path)))
    found = {getattr(node, each, None) for node in nodes for each in attributes}
    found |= {node.value for node in nodes if isinstance(node, ast.Constant)}
    return {part for name in found if isinstance(name, str) for part in (name, *name.split("."))}


def docstring_of(path: Path) -> str:
    return ast.get_docstring(tree_of(path)) or ""


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))
