"""Finds the fields of a hardware file's keys, their units and allowed values."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Literal, NamedTuple, get_args, get_origin

from annotated_types import MaxLen
from pydantic import BaseModel, ValidationError, create_model
from pydantic.fields import FieldInfo

from ndpsim.base.errors import shown
from ndpsim.config.files import PART_SECTIONS
from ndpsim.config.quantities import Section
from ndpsim.config.system import MULTIPLIERS, UNITS, System


class Row(NamedTuple):
    """A value of hardware: its dotted key in a file, its unit (or empty), and where it comes from."""

    key: str
    value: str | int | float | None
    unit: str
    origin: str


def _parts(field: FieldInfo) -> list[FieldInfo]:
    """`field`, and the type inside if it is optional."""
    inner = [arg for arg in get_args(field.annotation) if arg is not type(None)]
    optional = type(None) in get_args(field.annotation)
    return [field, *(FieldInfo.from_annotation(arg) for arg in inner if optional)]


def section_of(field: FieldInfo) -> type[Section] | None:
    """The model of `field` if it is a section, optional or not; None if it is a leaf."""
    kind = _parts(field)[-1].annotation
    return kind if isinstance(kind, type) and issubclass(kind, Section) else None


def _entry(field: FieldInfo) -> FieldInfo | None:
    """The field of each entry of a mapping or list; None if `field` is neither."""
    if get_origin(field.annotation) not in (dict, list):
        return None
    return FieldInfo.from_annotation(get_args(field.annotation)[-1])


def field_at(path: tuple[str, ...]) -> FieldInfo | None:
    """The field at the keys of `path` in a `System`; None if there is none."""
    model: type[Section] | None = System
    field: FieldInfo | None = None
    for key in path:
        if model is not None:
            field = model.model_fields.get(key)
        else:
            field = _entry(field) if field is not None else None
        if field is None:
            return None
        model = section_of(field)
    return field


def leaves(section: BaseModel, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every key path under `section` with its value, in the order of declaration."""
    for key, field in type(section).model_fields.items():
        value = getattr(section, key)
        if value is None and section_of(field) is not None:
            continue
        if isinstance(value, BaseModel):
            yield from leaves(value, (*path, key))
        elif isinstance(value, dict):
            yield from (((*path, key, name), entry) for name, entry in value.items())
        else:
            yield (*path, key), value


def unit_of(path: tuple[str, ...]) -> str:
    """The unit of the leaf at `path`; empty if it has none."""
    field = field_at(path)
    return "" if field is None else _unit(field)


def _unit(field: FieldInfo) -> str:
    for part in _parts(field):
        if isinstance(part.json_schema_extra, dict) and "unit" in part.json_schema_extra:
            return str(part.json_schema_extra["unit"])
    return ""


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)


def allowed(field: FieldInfo, with_unit: bool = True) -> str:
    """Allowed values of a leaf, in words: ``a whole number from 1 to 1000000, in TB/s``."""
    unit = _unit(field) if with_unit else ""
    return _values(field) + (f", in {unit}" if unit else "")


def _values(field: FieldInfo) -> str:
    part = _parts(field)[-1]
    if section_of(part) is not None:
        return "a mapping of keys to values"
    if get_origin(part.annotation) is list:
        return "a list of words"
    if get_origin(part.annotation) is dict:
        entry = get_origin(get_args(part.annotation)[1])
        return "a mapping of words to lists" if entry is list else "a mapping of timing names to clocks or ns"
    if part.annotation is Any:
        return "a whole number from 1 to 1000000, or a time such as 14.16ns"
    if get_origin(part.annotation) is Literal:
        return f"one of {', '.join(map(str, get_args(part.annotation)))}"
    names = ("gt", "ge", "le")
    items = [item for inner in _parts(field) for item in inner.metadata]
    limits = {name: getattr(item, name) for item in items for name in names if hasattr(item, name)}
    if part.annotation is str:
        longest = next((item.max_length for item in items if isinstance(item, MaxLen)), None)
        return ANY_TEXT + (f" of 1 to {longest} characters" if longest else "")
    kind = "a whole number" if part.annotation is int else "a number"
    low = f"from {_number(limits['ge'])} to" if "ge" in limits else f"above {_number(limits['gt'])}, up to"
    return f"{kind} {low} {_number(limits['le'])}"


def refusal(path: tuple[str, ...], value: Any) -> str | None:
    """The reason why the leaf at `path` cannot be `value`, in words; None if it can.

    Raises:
        KeyError: there is no key at `path`.
    """
    field, section = _leaf(path)
    try:
        section.model_validate({"value": value})
    except ValidationError as error:
        why = error.errors()[0].get("ctx", {}).get("error")  # of a rule in Python, as for decimals
        return f"{shown(value)} {why or f'is not {allowed(field)}'}"
    return None


@lru_cache(maxsize=1024)
def _leaf(path: tuple[str, ...]) -> tuple[FieldInfo, type[Section]]:
    """The field at `path`, and a section whose key "value" takes what it takes."""
    field = field_at(path)
    if field is None:
        raise KeyError(path)
    leaf: dict[str, Any] = {"value": (field.annotation, field)}
    return field, create_model("Leaf", __base__=Section, **leaf)


# ---- The JSON schema of hardware files, for editors; `load_hardware` does not need it


_OUTSIDE = ("title", "description", "default", "unit")  # these belong to the key, not to the bare value
_SENTENCE = {"type": "string", "minLength": 1}
_ANNOTATED = {
    "type": "object",
    "description": "a value with its source, the hardware that has it, or the assumption it rests on",
    "properties": {"value": True, "source": _SENTENCE, "rtl": _SENTENCE, "assumption": _SENTENCE},
    "required": ["value"],
    "oneOf": [{"required": ["source"]}, {"required": ["rtl"]}, {"required": ["assumption"]}],
    "additionalProperties": False,
}
_FILE = {"type": "string", "description": "name of a file in rtl_params/, or a path ending in .yaml"}
#: How the words for a free text begin.
ANY_TEXT = "a text"
#: The key of a unit's section that names a file with values for the keys that the section lacks.
UNIT_PART = "part"


def _schema_leaf(bare: dict[str, Any]) -> dict[str, Any]:
    """The schema of a leaf: the value alone, or a mapping with its source or assumption."""
    outside = {key: bare[key] for key in _OUTSIDE if key in bare}
    inside = {key: value for key, value in bare.items() if key not in _OUTSIDE}
    annotated = {"allOf": [{"$ref": "#/$defs/Annotated"}], "properties": {"value": inside}}
    return {**outside, "anyOf": [inside, annotated]}


def _property(bare: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in bare or any("$ref" in choice for choice in bare.get("anyOf", ())):
        return bare  # a section, perhaps an optional one
    if bare.get("type") == "object":
        return {**bare, "additionalProperties": _schema_leaf(bare["additionalProperties"])}
    return _schema_leaf(bare)


def _model_at(key: str) -> str:
    """The name of the model of a section."""
    field = field_at(tuple(key.split(".")))
    model = section_of(field) if field is not None else None
    return model.__name__ if model is not None else ""


def _require_part_or_values(model: dict[str, Any]) -> None:
    """Require either a part or the keys of a section."""
    if "required" in model:
        model["anyOf"] = [{"required": ["part"]}, {"required": model.pop("required")}]


def json_schema() -> dict[str, Any]:
    """JSON schema (2020-12) of hardware files, with annotated leaves and named units allowed.

    Each unit under ``ndp`` is also a definition of its own (``#/$defs/Gemv``), for files in ``rtl_params/``.
    """
    schema = System.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    for model in (schema, *schema["$defs"].values()):
        model["properties"] = {key: _property(bare) for key, bare in model["properties"].items()}
    schema["$defs"]["Annotated"] = _ANNOTATED
    for key in PART_SECTIONS:
        _require_part_or_values(schema["$defs"][_model_at(key)])
    units = schema["$defs"]["Ndp"]["properties"]
    for key in UNITS:
        units[key] = {"anyOf": [*units[key].get("anyOf", [units[key]]), *_schema_leaf(_FILE)["anyOf"]]}
        unit = schema["$defs"][_model_at(f"ndp.{key}")]
        unit["properties"][UNIT_PART] = _schema_leaf(_FILE)
        _require_part_or_values(unit)
    schema["$defs"]["Ndp"]["oneOf"] = [
        {"required": [key], "properties": {key: {"not": {"type": "null"}}}} for key in MULTIPLIERS
    ]
    return schema


def schema_text() -> str:
    """The text of ``hwconfigs/schema.json``."""
    return json.dumps(json_schema(), indent=2, sort_keys=True) + "\n"
