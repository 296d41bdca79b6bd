"""The commands, outputs and Python blocks of README.md and docs/."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
# commands.md names commands without what they must be given. Pages in docs/adding change the package itself: tests/test_adding*.py follow them step by step.
PAGES = [
    ROOT / "README.md",
    *sorted(
        page
        for page in (ROOT / "docs").rglob("*.md")
        if page.parent.name != "adding" and page.name != "commands.md"
    ),
]

# A placeholder for a reader's value: NAME, FILE.json, KEY=VALUE, and "..." for more of the kind.
_PLACEHOLDER = re.compile(r"[A-Z]{2,}[A-Z_]*(\.[a-z.]+)?|.*\.\.\.|\w+=[A-Z]+|.*[|<].*")


@dataclass
class Command:
    """A command line without ``ndpsim``, its pages, and the output that they show."""

    line: str
    pages: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and the line of the page on which it begins."""

    language: str
    text: str
    line: int


def blocks(text: str) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    for found in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield Block(found[1], found[2], text.count("\n", 0, found.start()) + 2)


def shell_commands(text: str) -> Iterator[str]:
    """Each command of a shell block, without comments, with continued lines joined, and split at ``&&`` and ``;``."""
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        bare = re.sub(r"(^|\s)#.*", "", line)
        if bare.startswith("eval "):
            yield bare.strip()
            continue
        parts = (" ".join(part.split()) for part in re.split(r"&&|;", bare))
        yield from (part for part in parts if part)


def shown_commands(text: str) -> Iterator[tuple[str, str]]:
    """Each command after a ``$``, with the output that follows it."""
    joined = re.sub(r"\\\n\s*", " ", text)
    for part in re.split(r"^\$ ", joined, flags=re.MULTILINE)[1:]:
        line, _, output = part.partition("\n")
        yield " ".join(line.split()), output


def inline_commands(text: str) -> Iterator[str]:
    """``ndpsim ...`` in running text, if it can be typed as it is."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    for found in re.findall(r"(?<!`)`(ndpsim [^`]+)`", prose):
        words = " ".join(found.split())
        if len(words.split()) > 2 and not any(_PLACEHOLDER.fullmatch(word) for word in words.split()):
            yield words


def commands_of(text: str) -> Iterator[tuple[str, str | None]]:
    """Every command of a page, and its output if the page shows it."""
    for block in blocks(text):
        if block.language == "sh":
            yield from ((line, None) for line in shell_commands(block.text))
        elif block.text.startswith("$ "):
            yield from shown_commands(block.text)
    yield from ((line, None) for line in inline_commands(text))


def all_commands() -> list[Command]:
    """Every command of every page, each once."""
    found: dict[str, Command] = {}
    for page in PAGES:
        name = str(page.relative_to(ROOT))
        for line, output in commands_of(page.read_text(encoding="utf-8")):
            command = found.setdefault(line, Command(line))
            command.pages.append(name)
            if output is not None and output.strip():
                command.shown.append(output)
    return list(found.values())


def named_file(block: Block) -> str | None:
    """The file that a block says it is: its first line is ``# NAME.yaml`` or begins with ``\"\"\"NAME.py:``."""
    found = re.match(r'(?:# |""")([\w.-]+\.(?:yaml|py|json))(?::|\n)', block.text)
    return found[1] if found else None


def differs(shown: str, printed: str) -> str | None:
    """The first line of `shown` that is not at its place in `printed`, if any.

    A line ``...`` matches any lines, `` ...`` at the end of a line its rest. Wall times are taken as equal.
    """
    rest = [_without_wall_times(line) for line in printed.splitlines()]
    anywhere = False
    for line in map(_without_wall_times, shown.rstrip("\n").splitlines()):
        if line == "...":
            anywhere = True
            continue
        at = next((n for n, other in enumerate(rest) if _alike(line, other)), None)
        if at is None or (at and not anywhere):
            return line
        rest, anywhere = rest[at + 1 :], False
    return None if anywhere or not any(rest) else "(the end)"


def _alike(line: str, other: str) -> bool:
    return other.startswith(line.removesuffix(" ...")) if line.endswith(" ...") else line == other


def _without_wall_times(line: str) -> str:
    return re.sub(r"(simulated in)\s+[^,;]+", r"\1 ...", line).rstrip()


def words_of(line: str) -> list[str]:
    """The words of a command line after ``ndpsim``."""
    return shlex.split(line)[1:]


def without(words: Sequence[str], options: Sequence[str]) -> list[str]:
    """The words of a command without these options and their values."""
    dropped = {place + n for place, word in enumerate(words) if word in options for n in (0, 1)}
    return [word for place, word in enumerate(words) if place not in dropped]
