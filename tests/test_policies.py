"""Policies by name and from files: what they are given, and what is wrong with a request, in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from ndpsim.errors import InputError
from ndpsim.policies import choose_policy, parameters_of, policies, policy_names
from ndpsim.policies.choose import policy_class

OWN = """
from typing import Literal
from pydantic import Field
from ndpsim.policies import Assignment, Policy, PolicyParameters

class Parameters(PolicyParameters):
    share: float = Field(0.5, ge=0, le=1, description="of experts")
    most: int | None = Field(None, ge=1, description="experts")
    on: bool = Field(True, description="whether")
    order: Literal["given", "sorted"] = "given"

class Mine(Policy):
    name = "mine"
    title = "A policy of one's own"
    Parameters = Parameters

    def assign(self, view):
        return Assignment(cpu=view.loads.nonzero()[0].tolist())

class Unfinished(Policy):
    name = "unfinished"
    title = "It assigns nothing"

class Nameless(Mine):
    name = None

class Bare(Mine):
    Parameters = dict

other = 3
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    file = tmp_path / "own.py"
    file.write_text(OWN)
    return file


def refusal(asked: object) -> str:
    with pytest.raises(InputError) as caught:
        choose_policy(asked)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    return str(caught.value)


# Policies by what they are called


def test_every_bundled_policy_is_found_by_its_name_and_says_what_it_is():
    assert policy_names() == sorted(policies())
    for name, policy in policies().items():
        chosen = choose_policy(name)
        assert (chosen.name, chosen.policy) == (name, policy)
        assert policy.title
        assert all(parameter.description for parameter in parameters_of(policy))


def test_a_users_class_is_found_in_its_file_with_its_parameters(own):
    chosen = choose_policy(f"{own}:Mine:share=0.25, most=3,on=false,order=sorted")
    assert chosen.name == "mine"
    assert chosen.parameters.model_dump() == {"share": 0.25, "most": 3, "on": False, "order": "sorted"}
    assert choose_policy(f"{own}:Mine:most=none").parameters.model_dump()["most"] is None
    assert choose_policy(f"{own}:Mine").policy is chosen.policy
    assert choose_policy(chosen.policy).parameters == choose_policy(f"{own}:Mine").parameters
    assert choose_policy(chosen) is chosen
    assert not list(own.parent.glob("__pycache__"))


def test_parameters_say_their_type_default_and_meaning(own):
    listed = parameters_of(policy_class(f"{own}:Mine"))
    assert [(one.name, one.type, one.default, one.description) for one in listed] == [
        ("share", "a number from 0 to 1", 0.5, "of experts"),
        ("most", "a whole number from 1 or none", None, "experts"),
        ("on", "true or false", True, "whether"),
        ("order", "one of given, sorted", "given", ""),
    ]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (
            "Mine:shar=1",
            "policy mine: unknown parameter 'shar'; did you mean 'share'? (known: most, on, order, share)",
        ),
        ("Mine:share=2", "policy mine:share: '2' is not a number from 0 to 1"),
        ("Mine:share=nan", "policy mine:share: 'nan' is not a number from 0 to 1"),
        ("Mine:most=1.5", "policy mine:most: '1.5' is not a whole number from 1 or none"),
        ("Mine:on=perhaps", "policy mine:on: 'perhaps' is not true or false"),
        ("Mine:order=random", "policy mine:order: 'random' is not one of given, sorted"),
        ("Mine:share", "policy mine: 'share' is not of the form KEY=VALUE"),
        ("Mine:share=1,share=1", "policy mine: 'share' is given twice"),
        (
            "Min",
            "FILE: policy: unknown class 'Min'; did you mean 'Mine'? (known: Bare, Mine, Nameless, Unfinished)",
        ),
        (
            "",
            "FILE: policy: give the class as FILE:ClassName (policies there: Mine, Unfinished, Nameless, Bare)",
        ),
        ("other", "FILE: policy: 3 is not a subclass of ndpsim.policies.Policy"),
        ("Field", "FILE: policy: Field is not a subclass of ndpsim.policies.Policy"),
        ("Unfinished", "FILE: policy: Unfinished does not define assign"),
        ("Nameless", "FILE: policy: Nameless has no name; give it one, name = '...'"),
        ("Bare", "FILE: policy: Bare.Parameters is not a subclass of ndpsim.policies.PolicyParameters"),
    ],
)
def test_what_is_wrong_with_a_request_is_said_in_one_line(own, asked, words):
    assert refusal(f"{own}:{asked}") == words.replace("FILE", str(own))


def test_unknown_names_and_files_that_cannot_be_run_are_refused(tmp_path):
    assert refusal("trimo").startswith("policy: unknown policy 'trimo'")
    assert "path/to/file.py:ClassName" in refusal("trimo")
    assert (
        refusal(f"{tmp_path}/none.py:Mine")
        == f"{tmp_path}/none.py: policy: cannot be read: No such file or directory"
    )
    assert "cannot be read" in refusal(f"{tmp_path}/a\0b.py:Mine")
    for content, line, words in [
        ("x = 1\nx = (\n", 2, "is no Python: '(' was never closed"),
        (
            "\n\nimport nothing_such\n",
            3,
            "cannot be imported: ModuleNotFoundError: No module named 'nothing_such'",
        ),
        ("def f():\n    raise SystemExit(3)\nf()\n", 2, "cannot be imported: SystemExit: 3"),
    ]:
        file = tmp_path / "broken.py"
        file.write_text(content)
        assert refusal(f"{file}:Mine") == f"{file}:{line}: policy: {words}"
    (tmp_path / "empty.py").write_text("")
    assert refusal(f"{tmp_path}/empty.py:Mine").endswith("policy: there is no class 'Mine', and no Policy")
    assert refusal(3) == "policy: 3 is not a text"
    assert refusal(int) == "policy: int is not a subclass of ndpsim.policies.Policy"
