"""Loss by quantisation to few bits, by layer and expert: a table, bundled or from a file.

A CSV file may begin with comment lines ``# ...``. Its columns are ``layer,expert,bits,loss``, with a line for
every layer of the run, every expert and each of 1, 2, 3 and 4 bits. Without the column `layer` the lines
apply to all layers. If they have only n experts, expert e has the losses of expert e mod n; the bundled table
therefore fits any model. An NPZ file has an array `loss` [layer, expert, bits], with the model's layers from
0.
"""

from __future__ import annotations

import csv
import zipfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ndpsim.errors import InputError
from ndpsim.policies.published.cxl.prefix_split import BITS

Floats = NDArray[np.float64]

_BUNDLED = Path(__file__).parent / "quantisation_loss_synthetic.csv"
_MAX_BYTES = 1 << 24
_COLUMNS = ("expert", "bits", "loss")


def read_losses(file: str | None, layers: tuple[int, ...], experts: int) -> Floats:
    """Losses [layer, expert, bits], rows as in `layers`; None: those of the bundled, synthetic table.

    Raises:
        InputError: the file cannot be read, a number of it is wrong, or a layer, expert or bits are missing.
    """
    path = _BUNDLED if file is None else Path(file)
    try:
        if not path.is_file():
            raise InputError("is no file" if path.exists() else "no such file", "unreadable", file=path)
        if path.stat().st_size > _MAX_BYTES:
            raise InputError(
                f"larger than {_MAX_BYTES >> 20} MiB: no table of losses", "too-large", file=path
            )
        if path.suffix == ".npz":
            return _read_array(path, layers, experts)
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise InputError("is not UTF-8 text", "form", file=path) from None
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, EOFError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"cannot be read: {getattr(error, 'strerror', None) or error}", "unreadable", file=path
        ) from None
    return _read_lines(lines, path, layers, experts)


def _read_array(path: Path, layers: tuple[int, ...], experts: int) -> Floats:
    with np.load(path, allow_pickle=False) as arrays:
        if "loss" not in arrays:
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


def _read_lines(lines: list[str], path: Path, layers: tuple[int, ...], experts: int) -> Floats:
    rows = [(number, line) for number, line in enumerate(lines, 1) if line.strip() and line[0] != "#"]
    columns = tuple(part.strip() for part in rows[0][1].split(",")) if rows else ()
    if columns not in (_COLUMNS, ("layer", *_COLUMNS)):
        line = rows[0][0] if rows else None
        raise InputError(
            "the columns are not expert,bits,loss or layer,expert,bits,loss", "form", file=path, line=line
        )
    found: dict[tuple[int, int, int], float] = {}
    for number, text in rows[1:]:
        *place, loss = _numbers(text, columns, path, number)
        layer, expert, bits = (0, *place) if len(place) == len(BITS) - 2 else place
        if (int(layer), int(expert), int(bits)) in found:
            raise InputError(f"'{text.strip()[:60]}' is given twice", "twice", file=path, line=number)
        found[int(layer), int(expert), int(bits)] = loss
    per_layer = "layer" in columns
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
                f"'{part.strip()[:60]}' is not {wanted}", "range", file=path, line=line, key=column
            )
        numbers.append(value)
    return numbers
