"""Experts that llama.cpp chose, as CSV: ``layer_id,expert_ids``, the ids separated by blanks.

A row is a token in a layer, whose number is that in the model. Consecutive rows of a layer are the tokens of
a pass; a layer that is repeated after others begins the next pass. Passes before the first one with the same
number of tokens as the last one are prefill.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ndpsim.base.errors import InputError, shown
from ndpsim.base.text_files import numbered_lines
from ndpsim.workload.routing.recorded import Passes, Recorded, RoutingFormat, Stated, assembled

_HEADER = "layer_id,expert_ids"


def _read(paths: Sequence[Path], stated: Stated) -> Recorded:
    passes = Passes()
    for path in paths:
        width = 0
        for line, text in numbered_lines(path):
            if text == _HEADER and line == 1:
                continue
            layer, comma, ids = text.partition(",")
            words = ids.replace('"', "").split()
            if (
                not comma
                or not words
                or not all(word.isascii() and word.isdigit() for word in (layer, *words))
            ):
                problem = f"{shown(text)} is not a layer, a comma and experts separated by blanks"
                raise InputError(problem, "form", file=path, line=line)
            width = width or len(words)
            if len(words) != width:
                problem = f"{len(words)} experts, and {width} in the lines before"
                raise InputError(problem, "form", file=path, line=line, key="expert_ids")
            passes.add(int(layer[:9]), [int(word[:9]) for word in words], f"the pass from line {line} on")
    return assembled(passes.found, paths[0])


FORMAT = RoutingFormat(
    example="3,52 40 85 110 79 113 60 130",
    meaning="CSV of llama.cpp, columns layer_id,expert_ids: the experts of a token, separated by blanks",
    recognises=lambda path, head: head.removeprefix(b"\xef\xbb\xbf").startswith(_HEADER.encode()),
    read=_read,
)
