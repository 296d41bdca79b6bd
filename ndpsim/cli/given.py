"""Which options a call was given, and the refusal of those that mean nothing in it."""

from __future__ import annotations

import click
from click.core import ParameterSource

from ndpsim.errors import InputError


def is_given(name: str) -> bool:
    """Whether the parameter `name` of the command under way was given, be it with its default value."""
    return click.get_current_context().get_parameter_source(name) not in (None, ParameterSource.DEFAULT)


def refuse_given(why: str, *names: str) -> None:
    """Refuse the parameters `names` of the command under way.

    Raises:
        InputError: one of them was given; it is named as it is typed, and `why` it means nothing.
    """
    context = click.get_current_context()
    typed = {parameter.name: parameter.opts[0] for parameter in context.command.params}
    for name in names:
        if is_given(name):
            raise InputError(why, key=typed[name])
