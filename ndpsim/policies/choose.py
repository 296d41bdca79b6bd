"""Finds policies by name: ``NAME`` or ``path/to/file.py:ClassName``, each with parameters.

Parameters follow a colon, as in ``trimoe:refine=false,ema_alpha=0.5``.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import itertools
import re
import sys
import textwrap
import traceback
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Union, cast, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from ndpsim.base.arguments import settings, several
from ndpsim.base.arguments import text as as_text
from ndpsim.base.errors import InputError, one_of, shown
from ndpsim.base.plugins import plugins_by_name
from ndpsim.base.run_files import note_input
from ndpsim.policies import own, published
from ndpsim.policies.answers.asking import Answering
from ndpsim.policies.interface import Policy, PolicyParameters
from ndpsim.policies.views import Estimates, Machine

#: Engines of a machine, in words.
ENGINES = {"gpu": "a GPU", "cpu": "a CPU that computes experts", "ndp": "NDP DIMMs"}

#: Stands for all bundled policies.
ALL = "all"

_KEY = "policy"
_FILE = re.compile(r"(?P<file>.*?\.py)(?::(?P<rest>.*))?", re.DOTALL)
_LONGEST = 60  # characters of a part of the request in a message


@dataclass(frozen=True)
class PolicyParameter:
    """A parameter of a policy.

    Attributes:
        type: the type of the value, in words, with its limits.
        default: its value when it is not given.
        description: its meaning, with its source.
    """

    name: str
    type: str
    default: Any
    description: str


@dataclass(frozen=True)
class ChosenPolicy:
    """A chosen policy, with all of its parameters.

    Attributes:
        policy: its class.
        parameters: the given values, and the defaults of all others.
    """

    policy: type[Policy]
    parameters: PolicyParameters

    @property
    def name(self) -> str:
        """The policy's bare name."""
        return self.policy.name

    def check(self, machine: Machine) -> None:
        """Make sure that the policy can run on a machine, as far as no simulation is needed.

        Raises:
            InputError: it needs an engine that the machine lacks, or refuses it itself.
        """
        has = {"gpu": True, "cpu": machine.has_cpu, "ndp": bool(machine.dimms)}
        for engine in self.policy.needs:
            if not has[engine]:
                raise InputError(f"{self.name} needs {ENGINES[engine]}: {machine.name} has none", "conflict")
        with Answering(self.name, "check"):
            self.policy.check(machine, self.parameters)

    def start(self, machine: Machine, estimates: Estimates) -> Policy:
        """The policy, started for one run; raises the errors of `check`."""
        self.check(machine)
        with Answering(self.name, "__init__"):
            return self.policy(machine, estimates, self.parameters)


@functools.cache
def policies() -> Mapping[str, type[Policy]]:
    """All bundled policies by name."""
    found = plugins_by_name(published, "POLICY") | plugins_by_name(own, "POLICY")
    return types.MappingProxyType(dict(sorted(found.items())))


def policy_names() -> list[str]:
    """The names of all bundled policies."""
    return list(policies())


def parameters_of(policy: type[Policy]) -> tuple[PolicyParameter, ...]:
    """The parameters of a policy, in the order of its class."""
    texts = _texts(policy.Parameters)
    return tuple(
        PolicyParameter(
            name, _allowed(field), field.default, " ".join((field.description or texts.get(name, "")).split())
        )
        for name, field in policy.Parameters.model_fields.items()
    )


def _texts(parameters: type[PolicyParameters]) -> dict[str, str]:
    """The text below each field of a class and its bases, read from their source, which takes its time."""
    found: dict[str, str] = {}
    for base in reversed(parameters.__mro__):
        if not issubclass(base, PolicyParameters):
            continue
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
        except (OSError, SyntaxError):  # typed in, or its file has changed since
            continue
        for field, text in itertools.pairwise(cast(ast.ClassDef, tree.body[0]).body):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                    found[name] = words
    return found


def policy_class(name: str) -> type[Policy]:
    """The class of a policy, by its name or as ``path/to/file.py:ClassName``.

    Raises:
        InputError: there is none.
    """
    policy, rest = _found(as_text(name, _KEY).strip())
    if rest:
        raise InputError(f"'{rest[:_LONGEST]}' is not allowed after the policy's name here", "form", key=_KEY)
    return policy


def choose_policy(asked: str | type[Policy] | ChosenPolicy) -> ChosenPolicy:
    """A policy with its parameters.

    Args:
        asked: ``NAME[:KEY=VALUE,...]``, ``path/to/file.py:ClassName[:KEY=VALUE,...]``, or a class. A file
            with one policy needs no class: ``path/to/file.py``.

    Raises:
        InputError: the policy or file does not exist, the file cannot be run, its class is not a policy, or a
            parameter does not exist or cannot have this value.
    """
    if isinstance(asked, ChosenPolicy):
        return asked
    if isinstance(asked, type):
        return ChosenPolicy(_checked(asked, None), _validated(asked, {}))
    policy, rest = _found(as_text(asked, _KEY).strip())
    return ChosenPolicy(policy, _validated(policy, settings(rest, f"{_KEY} {policy.name}")))


def choose_policies(asked: Sequence[str | type[Policy] | ChosenPolicy]) -> list[tuple[ChosenPolicy, bool]]:
    """Policies with their parameters; "all" means all bundled policies that are not named separately.

    It does not include policies that rehearse, which need many runs each.

    Returns:
        Each with whether it was named: policies that only "all" includes may be left out if a machine lacks
        an engine that they need.

    Raises:
        InputError: as `choose_policy`, or there are none.
    """

    def chosen_one(pick: Any, _: str) -> ChosenPolicy | None:
        return None if isinstance(pick, str) and pick == ALL else choose_policy(pick)

    chosen = several(asked, "policies", chosen_one)
    if not chosen:
        raise InputError("is empty: there is nothing to run", "missing", key="policies")
    named = {pick.name for pick in chosen if pick is not None}
    others = [policy for name, policy in policies().items() if name not in named and not policy.rehearses]
    answer: list[tuple[ChosenPolicy, bool]] = []
    for pick in chosen:
        if pick is not None:
            answer.append((pick, True))
        else:
            answer += [(choose_policy(policy), False) for policy in others]
            others = []
    return answer


def _found(text: str) -> tuple[type[Policy], str]:
    """The class of a request, and the rest of the request after the colon."""
    name, _, rest = text.partition(":")
    name = name.strip()
    if name in policies():
        return policies()[name], rest
    named = _FILE.fullmatch(text)
    if named is None:
        problem = one_of(name, policies(), "policy")
        own = "a policy of your own is path/to/file.py:ClassName"
        raise InputError(f"{problem}; {own}", "unknown-name", key=_KEY)
    file = Path(named["file"])
    wanted, _, rest = (named["rest"] or "").partition(":")
    module = _module(file)
    return _class_of(module, wanted.strip(), file), rest


# A user's file


def _module(file: Path) -> types.ModuleType:
    """A file run as a module."""
    note_input(file)
    try:
        content = file.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot be read: {reason}", "unreadable", file=file, key=_KEY) from None
    # Pydantic and dataclasses look up annotations in the class's module in sys.modules.
    digest = hashlib.sha256(b"\0".join([bytes(file.resolve()), content])).hexdigest()
    name = f"ndpsim_policy_{digest[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    module = sys.modules[name] = types.ModuleType(name)
    module.__file__ = str(file)
    try:
        exec(compile(content, str(file), "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise _not_imported(error, file) from None
    return module


def _not_imported(error: BaseException, file: Path) -> InputError:
    if isinstance(error, SyntaxError):
        line = error.lineno if error.filename == str(file) else None
        return InputError(f"is no Python: {error.msg}", "form", file=file, line=line, key=_KEY)
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(file)]
    problem = f"cannot be imported: {type(error).__name__}: {error}"
    return InputError(problem, "policy", file=file, line=lines[-1] if lines else None, key=_KEY)


def _class_of(module: types.ModuleType, name: str, file: Path) -> type[Policy]:
    own = [
        key
        for key, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Policy) and value.__module__ == module.__name__
    ]
    if not name and len(own) == 1:
        name = own[0]
    if not name:
        problem = f"give the class as {file}:ClassName (policies there: {', '.join(own) or 'none'})"
        raise InputError(problem, "missing", file=file, key=_KEY)
    if not hasattr(module, name):
        none = f"there is no class '{name[:_LONGEST]}', and no Policy"
        raise InputError(one_of(name, own, "class") if own else none, "unknown-name", file=file, key=_KEY)
    return _checked(getattr(module, name), file)


def _checked(found: Any, file: Path | None) -> type[Policy]:
    """The class, if it is a complete policy."""

    def refused(problem: str) -> InputError:
        return InputError(problem, "policy", file=file, key=_KEY)

    name = getattr(found, "__name__", shown(found))
    if not (isinstance(found, type) and issubclass(found, Policy)):
        raise refused(f"{name} is not a subclass of ndpsim.policies.Policy")
    if inspect.isabstract(found):
        raise refused(f"{name} does not define {', '.join(sorted(found.__abstractmethods__))}")
    for attribute in ("engines", "needs"):
        named = getattr(found, attribute)
        if not isinstance(named, tuple) or not set(named) <= set(ENGINES):
            listed = ", ".join(ENGINES)
            raise refused(f"{name}.{attribute} is {shown(named)}, not a tuple of some of {listed}")
    if found.moments not in (("gate",), ("end",), ("gate", "end")):
        raise refused(f"{name}.moments is {shown(found.moments)}, not ('gate',), ('end',) or ('gate', 'end')")
    for attribute in ("name", "title"):
        if not isinstance(getattr(found, attribute, None), str):
            raise refused(f"{name} has no {attribute}; give it one, {attribute} = '...'")
    if not (isinstance(found.Parameters, type) and issubclass(found.Parameters, PolicyParameters)):
        raise refused(f"{name}.Parameters is not a subclass of ndpsim.policies.PolicyParameters")
    return found


# Parameters


def _validated(policy: type[Policy], texts: Mapping[str, str]) -> PolicyParameters:
    fields = policy.Parameters.model_fields
    for key in texts:
        if key not in fields:
            problem = one_of(key, fields, "parameter") if fields else f"has no parameters, and no '{key}'"
            raise InputError(problem, "unknown-key", key=f"{_KEY} {policy.name}")
    optional = {key for key in texts if _kinds(fields[key])[1]}
    values = {
        key: None if key in optional and text.lower() == "none" else text for key, text in texts.items()
    }
    try:
        return policy.Parameters.model_validate(values)
    except ValidationError as error:
        wrong: Any = error.errors(include_url=False)[0]
    except Exception as error:  # a user's validator may raise an error that pydantic does not expect
        raise InputError(f"{type(error).__name__}: {error}", "policy", key=f"{_KEY} {policy.name}") from None
    path = ".".join(str(part) for part in wrong["loc"][:1])
    key = f"{_KEY} {policy.name}" + (f":{path}" if path else "")
    if wrong["type"] == "missing":
        raise InputError(f"is missing; give {path}={_allowed(fields[path])}", "missing", key=key)
    if wrong["type"] == "value_error":
        raise InputError(str(wrong["ctx"]["error"]), "invalid", key=key)
    words = _allowed(fields[path]) if path in fields else wrong["msg"]
    raise InputError(f"{shown(wrong['input'])} is not {words}", "range", key=key)


def _kinds(field: FieldInfo) -> tuple[list[Any], bool]:
    """The types that a parameter may be of, and whether it may be None."""
    union = get_origin(field.annotation) in (Union, types.UnionType)
    kinds = list(get_args(field.annotation)) if union else [field.annotation]
    return [kind for kind in kinds if kind is not type(None)], type(None) in kinds


def _limits(field: FieldInfo) -> str:
    limits = {
        name: getattr(item, name)
        for item in field.metadata
        for name in ("ge", "gt", "le", "lt")
        if getattr(item, name, None) is not None
    }
    words = {"ge": "from", "gt": "above", "le": "to", "lt": "below"}
    return "".join(f" {word} {_number(limits[name])}" for name, word in words.items() if name in limits)


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


def _allowed(field: FieldInfo) -> str:
    """Allowed values of a parameter, in words: ``a number from 0 to 1``."""
    kinds, optional = _kinds(field)
    return " or ".join(_in_words(kinds, field)) + (" or none" if optional else "")


def _in_words(kinds: Iterable[Any], field: FieldInfo) -> list[str]:
    names: dict[Any, str] = {
        bool: "true or false",
        int: f"a whole number{_limits(field)}",
        float: f"a number{_limits(field)}",
        str: "a text",
    }
    return [
        f"one of {', '.join(map(str, get_args(kind)))}"
        if get_origin(kind) is Literal
        else names.get(kind) or f"a {getattr(kind, '__name__', kind)}"
        for kind in kinds
    ]
