"""Settings of calls: one field is an option, a key of sweeps, and an argument in Python with its check and help."""

from __future__ import annotations

import inspect
from dataclasses import FrozenInstanceError

import pytest

from ndpsim import InputError
from ndpsim.base.options import Choice, Flag, Parameter, Whole
from ndpsim.base.options.settings import (
    NEEDED,
    Settings,
    argument,
    called_with,
    documented_with,
    fields_of,
    like,
    option,
    table_of,
)

SEED = Parameter("seed", "Seed of the draw.", Whole(0, 9), 1)


class Draw(Settings):
    """What is drawn."""

    deck: str = option(NEEDED, Choice(("full", "short"), "deck"), "Cards.", "Game", required=True)
    hands: int = option(4, Whole(1, 8), "Number of hands.", "Game")
    kept_cards: int | None = option(None, Whole(1), "Cards that stay.", "Game", otherwise="all", stated=5)
    shuffled: bool = option(
        True,
        Flag(),
        "Do not shuffle.",
        "Game",
        name="no-shuffle",
        stated=None,
        negates=True,
        told="whether to",
    )
    seed: int = like(SEED, "Chance")
    players: object = argument((), "Who plays.", "Sequence[str]")


class Seeded(Settings):
    """What is random."""

    seed: int = like(SEED, "Chance")


@called_with(Draw)
def draw(settings: Draw, *, loud: bool = False) -> tuple[Draw, bool]:
    """Draw cards.

    Args:
        loud: whether to say so.
    """
    return settings, loud


def test_each_field_with_an_option_is_in_the_table_with_its_section():
    table = table_of(Draw)
    assert {name: one.section for name, one in table.items()} == {
        "deck": "Game", "hands": "Game", "kept-cards": "Game", "no-shuffle": "Game", "seed": "Chance"
    }  # fmt: skip
    assert [one.argument for one in table.values()] == ["deck", "hands", "kept_cards", "shuffled", "seed"]
    assert (table["hands"].default, table["kept-cards"].default, table["no-shuffle"].default) == (4, 5, None)
    assert table["deck"].required


def test_options_become_arguments_and_a_flag_can_turn_one_off():
    table = table_of(Draw)
    given = {"deck": "full", "no-shuffle": True}
    assert table.arguments(given) == {"deck": "full", "shuffled": False}
    assert (table.value(given, "no-shuffle"), table.value({}, "no-shuffle")) == (False, True)


def test_a_call_has_the_fields_as_arguments_and_then_its_own():
    settings, loud = draw("short", hands=2, loud=True)
    assert (settings, loud) == (Draw(deck="short", hands=2), True)
    assert list(inspect.signature(draw).parameters) == [
        "deck", "hands", "kept_cards", "shuffled", "seed", "players", "loud"
    ]  # fmt: skip
    with pytest.raises(TypeError, match="hand"):
        draw("full", hand=2)
    with pytest.raises(TypeError, match="deck"):
        draw()


def test_the_docstring_of_a_call_has_the_fields():
    text = inspect.getdoc(draw) or ""
    assert text.splitlines()[2:] == [
        "Args:",
        "    deck: cards.",
        "    hands: number of hands.",
        "    kept_cards: cards that stay; None: all.",
        "    shuffled: whether to.",
        "    seed: seed of the draw.",
        "    players: who plays.",
        "    loud: whether to say so.",
    ]


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        ({"hands": 9}, "hands"),
        ({"deck": "half"}, "deck"),
        ({"kept_cards": 0}, "kept_cards"),
        ({"shuffled": 1}, "shuffled"),
    ],
)
def test_a_value_is_checked_where_the_settings_are_made(wrong, key):
    with pytest.raises(InputError) as error:
        Draw(**{"deck": "full"} | wrong)
    assert error.value.key == key


class Game(Draw):
    """A draw of several rounds."""

    first = "deck rounds seed"

    rounds: int = option(1, Whole(1), "Number of rounds.", "Game")


class Table:
    """A table.

    Args:
        name: its name.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    @called_with(Game)
    def play(self, stake: float, settings: Game, *, loud: bool = False) -> tuple[str, float, Game, bool]:
        """Play.

        Args:
            stake: what each player puts in.
            loud: whether to say so.
        """
        return self.name, stake, settings, loud


def test_settings_of_a_call_inherit_fields_and_some_come_first():
    order = ["deck", "rounds", "seed", "hands", "kept_cards", "shuffled", "players"]
    assert list(inspect.signature(Table("oak").play).parameters) == ["stake", *order, "loud"]
    assert list(table_of(Game)) == ["deck", "rounds", "hands", "kept-cards", "no-shuffle", "seed"]
    assert fields_of(Draw, Game(deck="full", rounds=2)) == vars(Draw(deck="full"))


def test_a_method_is_called_with_the_fields_in_the_place_of_its_settings():
    assert Table("oak").play(1.5, "full", 2, loud=True) == ("oak", 1.5, Game(rounds=2, deck="full"), True)
    with pytest.raises(TypeError, match="stake"):
        Table("oak").play(deck="full")
    lines = (inspect.getdoc(Table.play) or "").splitlines()
    assert [line.partition(":")[0].strip() for line in lines[3:6]] == ["stake", "deck", "rounds"]
    assert lines[-1] == "    loud: whether to say so."


def test_the_docstring_of_a_class_has_the_fields_first():
    lines = (documented_with(Seeded)(Table).__doc__ or "").splitlines()
    assert lines[2:] == ["Args:", "    seed: seed of the draw.", "    name: its name."]


def test_settings_stay_as_they_are():
    settings = Draw(deck="full")
    with pytest.raises(FrozenInstanceError):
        settings.hands = 3  # type: ignore[misc]
    assert settings == Draw(deck="full")
