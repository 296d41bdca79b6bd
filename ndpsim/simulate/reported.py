"""Results as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

__all__ = ["Reported"]


def _plain(value: Any) -> Any:
    """A value as JSON has it: dataclasses and mappings as objects, tuples as lists."""
    if is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(of_key) for key, of_key in value.items()}
    return [_plain(one) for one in value] if isinstance(value, tuple | list) else value


class Reported:
    """A result, which is a dataclass."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; command traces are left out."""
        assert is_dataclass(self)
        names = [f.name for f in fields(self) if f.name != "command_traces"]
        return {name: _plain(getattr(self, name)) for name in names}
