"""Loss by quantisation to few bits, by layer and expert: a table, bundled or from a file.

A CSV file may begin with comment lines ``# ...``. Its columns are ``layer,expert,bits,loss``, with a line for
every layer of the run, every expert and each of 1, 2, 3 and 4 bits. Without the column `layer` the lines
apply to all layers. If they have only n experts, expert e has the losses of expert e mod n; the bundled table
therefore fits any model. An NPZ file has an array `loss` [layer, expert, bits], with the model's layers from
0.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from ndpsim.base.arrays import read_npz
from ndpsim.base.errors import InputError, shown
from ndpsim.base.text_files import numbered_lines
from ndpsim.policies.views import Floats

#: Possible bits of an expert's weights; the last axis of a table of losses.
BITS = (1, 2, 3, 4)
_BUNDLED = Path(__file__).parent / "quantisation_loss_synthetic.csv"
_COLUMNS = ("expert", "bits", "loss")


def read_losses(file: str | None, layers: tuple[int, ...], experts: int) -> Floats:
    """Losses [layer, expert, bits], rows as in `layers`; None: those of the bundled, synthetic table.

    Raises:
        InputError: the file cannot be read, a number of it is wrong, or a layer, expert or bits are missing.
    """
    path = _BUNDLED if file is None else Path(file)
    read = _read_array if path.suffix == ".npz" else _read_lines
    return read(path, layers, experts)


def _read_array(path: Path, layers: tuple[int, ...], experts: int) -> Floats:
    try:
        arrays = read_npz(path, lambda name: name == "loss")
    except InputError as error:
        raise InputError(error.problem, "unreadable", file=path, key=error.key) from None
    if not arrays:
        raise InputError("has no array 'loss'", "missing", file=path)
    losses = arrays["loss"]
    wanted = layers[-1] + 1, experts, len(BITS)
    fits = losses.ndim == 3 and losses.shape[0] >= wanted[0] and losses.shape[1:] == wanted[1:]
    if losses.dtype.kind not in "fiu" or not fits:
        problem = f"has the shape {losses.shape}, not {wanted} (layers or more, experts, bits) of numbers"
        raise InputError(problem, "form", file=path, key="loss")
    losses = losses.astype(np.float64)
    if not np.isfinite(losses).all():
        raise InputError("has losses that are not finite", "range", file=path, key="loss")
    return np.asarray(losses[list(layers)])


def _read_lines(path: Path, layers: tuple[int, ...], experts: int) -> Floats:
    rows = [(number, text) for number, text in numbered_lines(path) if text[0] != "#"]
    header, first = rows[0] if rows else (None, "")
    columns = tuple(part.strip() for part in first.split(","))
    if columns not in (_COLUMNS, ("layer", *_COLUMNS)):
        problem = "the columns are not expert,bits,loss or layer,expert,bits,loss"
        raise InputError(problem, "form", file=path, line=header)
    per_layer, found = "layer" in columns, dict[tuple[int, ...], float]()
    for number, text in rows[1:]:
        *numbers, loss = _numbers(text, columns, path, number)
        cell = (*([] if per_layer else [0]), *map(int, numbers))
        if cell in found:
            raise InputError(f"{shown(text)} is given twice", "twice", file=path, line=number)
        found[cell] = loss
    repeats = experts if per_layer else max((expert for _, expert, _ in found), default=0) + 1
    try:
        return np.array(
            [
                [[found[layer if per_layer else 0, expert % repeats, bits] for bits in BITS]
                 for expert in range(experts)]
                for layer in layers
            ]
        )  # fmt: skip
    except KeyError as error:
        layer, expert, bits = error.args[0]
        what = f"layer {layer}, expert {expert}" if per_layer else f"expert {expert}"
        raise InputError(f"has no loss of {what} with {bits} bits", "missing", file=path) from None


def _numbers(text: str, columns: tuple[str, ...], path: Path, line: int) -> list[float]:
    """The numbers of a line: whole ones, and a loss."""
    parts = next(csv.reader([text]))
    if len(parts) != len(columns):
        raise InputError(f"has {len(parts)} values for {len(columns)} columns", "form", file=path, line=line)
    numbers: list[float] = []
    for part, column in zip(parts, columns, strict=True):
        try:
            value = float(part) if column == "loss" else int(part)
        except ValueError:
            value = np.nan
        if (
            not np.isfinite(value)
            or (column == "bits" and value not in BITS)
            or (column != "loss" and value < 0)
        ):
            allowed = {"bits": f"one of {', '.join(map(str, BITS))}", "loss": "a number"}
            wanted = allowed.get(column, "a whole number from 0")
            raise InputError(
                f"{shown(part.strip())} is not {wanted}", "range", file=path, line=line, key=column
            )
        numbers.append(value)
    return numbers
