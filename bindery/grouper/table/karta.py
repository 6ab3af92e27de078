"""Converts Karta objects (run.ai/v1alpha1), which describe kinds to other schedulers, into rows.

Their paths are jq expressions. Fields, indexes by name, one list and a default are converted; what
else jq can do is named, so that a person can write it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from bindery.api.yamlfile import Document
from bindery.grouper.table.facts import mapping

GROUP: Final = "run.ai"
KIND: Final = "Karta"
_STEP: Final = re.compile(r'\.([A-Za-z_]\w*)|\.?\["([^"\]]+)"\]|(\[\])|\."([^"]+)"')
_DEFAULT: Final = re.compile(r'^(.*?)\s*//\s*(\d+|"[^"]*")$')
_NUMBER: Final = re.compile(r"^\d+$")
_LABEL: Final = re.compile(r'^\.metadata\.labels\["([^"]+)"\](\s*//\s*"[^"]*")?$')
_TOPOLOGY: Final = {
    "topologyName": "name",
    "requiredTopologyLevel": "required",
    "preferredTopologyLevel": "preferred",
}


class KartaError(ValueError):
    """An object, or a path of it, cannot be converted; the message has the reason."""


@dataclass
class Converted:
    """A row, as a row file has it, and what of the object is not in it."""

    row: dict[str, Any]
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _JqPath:
    """A converted path: the list that it goes through, if there is one, and the rest."""

    each: str | None
    text: str


def is_karta(document: Document) -> bool:
    """Return whether `document` is a Karta object."""
    data = mapping(document.data)
    return data.get("kind") == KIND and str(data.get("apiVersion", "")).startswith(f"{GROUP}/")


def convert(karta: Mapping[str, Any]) -> Converted:
    """Return the row for `karta`.

    Raises:
        KartaError: it names no kind, or no gang.
    """
    spec = mapping(karta.get("spec"))
    structure = mapping(spec.get("structureDefinition"))
    root = mapping(mapping(structure.get("rootComponent")).get("kind"))
    if not root.get("kind"):
        raise KartaError("spec.structureDefinition.rootComponent.kind is missing")
    match: dict[str, Any] = {"group": root.get("group") or "", "kind": root["kind"]}
    if root.get("version"):
        match["versions"] = [root["version"]]
    found = Converted({"match": match})
    components = {
        each["name"]: each
        for each in (structure.get("rootComponent"), *(structure.get("childComponents") or ()))
        if isinstance(each, Mapping) and each.get("name")
    }
    gang = _gang(spec)
    _put_grouping(found, gang, components)
    roles = list(_roles(found, gang, components))
    if len(roles) == 1 and not roles[0].get("pods") and "each" not in roles[0]:
        (role,) = roles
        kept = ("count", "min", "template", "topology")
        found.row |= {key: role[key] for key in kept if key in role}
    elif roles:
        found.row["roles"] = roles
    return found


def _gang(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part that describes the gang, in the older or the newer form, as the newer one."""
    for key in ("instructions", "optimizationInstructions"):
        gang = mapping(mapping(spec.get(key)).get("gangScheduling"))
        if gang.get("podGroup"):
            return mapping(gang["podGroup"])
        groups = gang.get("podGroups") or ()
        if groups:
            if len(groups) > 1:
                raise KartaError(f"it has {len(groups)} pod groups; a row has one")
            first = mapping(groups[0])
            return {**first, "subGroups": first.get("members") or ()}
    raise KartaError("it has no instructions for gang scheduling")


def _put_grouping(
    found: Converted, gang: Mapping[str, Any], components: Mapping[str, Mapping[str, Any]]
) -> None:
    """Write what a PodGroup is per: one label of the pods, or the owner."""
    labels: list[str] = []
    for member in _members(gang):
        paths = member.get("groupByKeyPaths") or ()
        labels.extend(_label(path, found.notes) for path in paths)
        component = components.get(str(member.get("componentName")), {})
        replica = mapping(mapping(component.get("podSelector")).get("replicaSelector"))
        if replica.get("keyPath"):
            labels.append(_label(replica["keyPath"], found.notes))
        if member.get("filters"):
            found.notes.append(f"filters of {member.get('componentName')} are left out")
    known = list(dict.fromkeys(label for label in labels if label))
    if known:
        found.row["per"] = {"label": known[-1]}
    if len(known) > 1:
        others = ", ".join(known[:-1])
        found.notes.append(f"groups are told apart by {known[-1]} and the owner, not by {others}")
    topology = _topology(gang)
    if topology:
        found.row["topology"] = topology


def _roles(
    found: Converted, gang: Mapping[str, Any], components: Mapping[str, Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    for member in _members(gang):
        name = str(member.get("componentName"))
        component = components.get(name)
        if component is None:
            found.notes.append(f"the component {name} does not exist and is left out")
            continue
        try:
            role = _role(name, component, found.notes)
        except KartaError as error:
            found.notes.append(f"the component {name} is left out: {error}")
            continue
        topology = _topology(member)
        yield {**role, "topology": topology} if topology else role


def _role(name: str, component: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    """Return the role for a component.

    Raises:
        KartaError: its number of pods is no path that can be converted.
    """
    scale = mapping(component.get("scaleDefinition"))
    template = mapping(component.get("specDefinition")).get("podTemplateSpecPath")
    paths = {
        "count": _converted(scale.get("replicasPath") or "1"),
        "min": _optional(scale.get("minReplicasPath"), name, notes),
        "template": _optional(template, name, notes),
        "name": _optional(component.get("instanceIdPath"), name, notes),
    }
    each = next((path.each for path in paths.values() if path is not None and path.each), None)
    role: dict[str, Any] = {"name": name}
    if each is not None:
        role = {"each": each, "name": f"{{{paths['name'].text}}}" if paths["name"] else name}
    for key in ("count", "min", "template"):
        path = paths[key]
        if path is None:
            continue
        root = "_root." if each is not None and path.each is None else ""
        text = path.text if _is_literal(path.text) else f"{root}{path.text}"
        role[key] = [text, role["count"]] if key == "min" else text
    pods = _pods(mapping(component.get("podSelector")), notes)
    return {**role, "pods": pods} if pods else role


def _pods(selector: Mapping[str, Any], notes: list[str]) -> dict[str, str]:
    """Return the labels that select the pods of a component."""
    kind = mapping(selector.get("componentTypeSelector"))
    instance = mapping(selector.get("componentInstanceSelector"))
    pods: dict[str, str] = {}
    if kind.get("keyPath"):
        key = _label(kind["keyPath"], notes)
        if key and kind.get("value") is not None:
            pods[key] = str(kind["value"])
        elif key:
            notes.append(f"pods that have the label {key} are not told by its presence alone")
    if instance.get("idPath"):
        key = _label(instance["idPath"], notes)
        if key:
            pods[key] = "{_name}"
    return pods


def _members(gang: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    return (each for each in gang.get("subGroups") or () if isinstance(each, Mapping))


def _topology(item: Mapping[str, Any]) -> dict[str, str]:
    """Return the constant topology of a gang or a member, as paths of a row."""
    given = mapping(item.get("topology"))
    return {ours: f"'{given[key]}'" for key, ours in _TOPOLOGY.items() if given.get(key)}


def _label(path: str, notes: list[str]) -> str:
    """Return the label that a jq path of a pod leads to; "" and a note for anything else."""
    found = _LABEL.match(path)
    if found is None:
        notes.append(f"{path} is not a label of pods")
        return ""
    return found[1]


def _optional(path: object, component: str, notes: list[str]) -> _JqPath | None:
    if not isinstance(path, str):
        return None
    try:
        return _converted(path)
    except KartaError as error:
        notes.append(f"{component}: {error}")
        return None


def _converted(path: str) -> _JqPath:
    """Return a jq path as JMESPath.

    Raises:
        KartaError: it is more than fields, one list and a default.
    """
    text, default = path.strip(), None
    if _NUMBER.match(text):
        return _JqPath(None, f"`{text}`")
    with_default = _DEFAULT.match(text)
    if with_default is not None:
        text, default = with_default[1].strip(" ()"), with_default[2]
    before, after = _steps(text, path)
    each = ".".join(before) if before is not None else None
    inner = ".".join(after) or "@"
    return _JqPath(each, inner if default is None else f"not_null({inner}, `{default}`)")


def _steps(text: str, path: str) -> tuple[Sequence[str] | None, Sequence[str]]:
    """Return the steps before the list of a path, None without one, and those after it."""
    before: list[str] | None = None
    steps: list[str] = []
    position = 0
    while position < len(text):
        step = _STEP.match(text, position)
        if step is None or (step[3] and before is not None):
            raise KartaError(f"the path {path} cannot be converted")
        position = step.end()
        if step[3]:
            before, steps = steps, []
        elif step[1]:
            steps.append(step[1])
        else:
            steps.append(f'"{step[2] or step[4]}"')
    if not steps and before is None:
        raise KartaError(f"the path {path} cannot be converted")
    return before, steps


def _is_literal(text: str) -> bool:
    return text.startswith("`")
