"""SPECs: what is generated, in a line, ``skewed:hot_share=0.3,step_stickiness=0.2``."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ndpsim.arguments import text as as_text
from ndpsim.errors import InputError, one_of
from ndpsim.moe import MoeShape
from ndpsim.plugins import plugins
from ndpsim.routing import generators as _folder
from ndpsim.routing.generator import Generator


@functools.cache
def generators() -> dict[str, Generator]:
    """All generators by name."""
    return {generator.name: generator for generator in plugins(_folder, "GENERATOR")}


def routing_names() -> list[str]:
    """What SPECs begin with: each generator, with each of the names that it can start from."""
    return [
        f"{kind}:{name}" if name else kind
        for kind, generator in sorted(generators().items())
        for name in generator.names() or [""]
    ]


@dataclass(frozen=True)
class Spec:
    """What is generated.

    Attributes:
        generator: of what kind.
        name: of the counts or the curve; empty where the generator needs none.
        given: the parameters that are not left at their defaults.
    """

    generator: Generator
    name: str
    given: Mapping[str, float | str]

    @property
    def parameters(self) -> dict[str, Any]:
        """All parameters by name."""
        defaults = {name: one.default for name, one in self.generator.all_parameters().items()}
        return defaults | dict(self.given)

    def __str__(self) -> str:
        keys = ",".join(
            f"{key}={value if isinstance(value, str) else repr(value)}" for key, value in self.given.items()
        )
        return ":".join(part for part in (self.generator.name, self.name, keys) if part)


def parse_spec(text: str | Spec) -> Spec:
    """A SPEC: ``skewed[:KEY=VALUE,...]``, ``popularity:NAME[:KEY=VALUE,...]`` or
    ``ranks:NAME[:KEY=VALUE,...]``.

    NAME of `popularity` is that of bundled counts, or of a JSON file of counts.

    Raises:
        InputError: there is no such generator, name or key, or a value is none.
    """
    if isinstance(text, Spec):
        return text
    kind, _, rest = as_text(text, "routing").strip().partition(":")
    if kind not in generators():
        raise InputError(one_of(kind, generators(), "kind of routing"), key="routing")
    generator = generators()[kind]
    name = ""
    if generator.names():
        before, colon, last = rest.rpartition(":")
        name, rest = (before, last) if colon and "=" in last else (rest, "")
        if not name:
            problem = f"'{text}' names nothing to start from; {kind}:{generator.names()[0]}, for instance"
            raise InputError(problem, key="routing")
    given: dict[str, float | str] = {}
    for part in filter(None, (part.strip() for part in rest.split(","))):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise InputError(f"'{part[:60]}' in '{text[:60]}' is not of the form KEY=VALUE", key="routing")
        parameter = generator.parameter(key)
        if key in given:
            raise InputError(f"'{key}' is given twice", key="routing")
        given[key] = parameter.read(value)
    return Spec(generator, name, given)


def default_routing(model: MoeShape) -> str:
    """The SPEC for a model: its bundled counts, else its published load curve by rank, else ``skewed``."""
    for kind in ("popularity", "ranks"):
        if model.name.lower() in generators()[kind].names():
            return f"{kind}:{model.name.lower()}"
    return "skewed"
