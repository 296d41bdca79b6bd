"""The JSON schema of hardware files, for editors; `load_hardware` does not need it."""

from __future__ import annotations

import json
from typing import Any

from ndpsim.config.files import PART_SECTIONS
from ndpsim.config.keys import field_at, section_of
from ndpsim.config.system import MULTIPLIERS, UNITS, System

_OUTSIDE = ("title", "description", "default", "unit")  # these belong to the key, not to the bare value
_SENTENCE = {"type": "string", "minLength": 1}
_ANNOTATED = {
    "type": "object",
    "description": "a value with its source, or with the assumption it rests on",
    "properties": {"value": True, "source": _SENTENCE, "assumption": _SENTENCE},
    "required": ["value"],
    "oneOf": [{"required": ["source"]}, {"required": ["assumption"]}],
    "additionalProperties": False,
}
_FILE = {"type": "string", "description": "name of a file in rtl_params/, or a path ending in .yaml"}


def _leaf(bare: dict[str, Any]) -> dict[str, Any]:
    """The schema of a leaf: the value alone, or a mapping with its source or assumption."""
    outside = {key: bare[key] for key in _OUTSIDE if key in bare}
    inside = {key: value for key, value in bare.items() if key not in _OUTSIDE}
    annotated = {"allOf": [{"$ref": "#/$defs/Annotated"}], "properties": {"value": inside}}
    return {**outside, "anyOf": [inside, annotated]}


def _property(bare: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in bare or any("$ref" in choice for choice in bare.get("anyOf", ())):
        return bare  # a section, perhaps an optional one
    if bare.get("type") == "object":
        return {**bare, "additionalProperties": _leaf(bare["additionalProperties"])}
    return _leaf(bare)


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
        units[key] = {"anyOf": [*units[key].get("anyOf", [units[key]]), *_leaf(_FILE)["anyOf"]]}
    schema["$defs"]["Ndp"]["oneOf"] = [
        {"required": [key], "properties": {key: {"not": {"type": "null"}}}} for key in MULTIPLIERS
    ]
    return schema


def schema_text() -> str:
    """The text of ``hwconfigs/schema.json``."""
    return json.dumps(json_schema(), indent=2, sort_keys=True) + "\n"
