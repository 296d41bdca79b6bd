"""Writes model-types.md: what is read of each type of model with experts, by the defaults of Transformers.

python docs/model_types.py                  writes the page and the table of classes' defaults from the record
python docs/model_types.py --record PYTHON  records them first, with a Python that has transformers and torch
"""

from __future__ import annotations

import gzip
import json
import re
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ndpsim.base.errors import InputError
from ndpsim.workload.models import MoeShape, load_model
from ndpsim.workload.models.known_keys import CLASS_DEFAULTS, FILE

VERSION = "5.24.0"
HERE = Path(__file__).parent
RECORD = HERE.parent / "tests" / "given" / f"transformers-{VERSION}.json.gz"
PAGE = HERE / "model-types.md"

# What the models of these types have, built by built_models.py.
BUILT = RECORD.with_name(f"transformers-{VERSION}-built.json.gz")
BUILDER = HERE / "built_models.py"

# Types that a process makes, and its time: modules on the meta device take memory and seconds, too.
_AT_ONCE, _MOST_SECONDS = 7, 300

# Parts of a configuration that say nothing of the text model.
_LEFT_OUT = (
    "id2label", "label2id", "architectures", "_name_or_path", "transformers_version", "vision_config",
    "audio_config", "vq_config", "code2wav_config", "talker_config", "backbone_config",
)  # fmt: skip

TEXT = """\
<!-- Made by `python docs/model_types.py`. -->

# Types of models

A `config.json` names its type in `model_type`. The table has every type of Transformers {version} whose
configuration names experts, with the defaults of its class. *Experts* is what `ndpsim gemv` needs: the
shape, the number and the layers. *Attention* is what `moe`, `predict` and `serve` need in addition. Where a
file is refused, the message names the key. A file of a type that is not listed is read by the keys that
most types share.

- A key that is not read, and whose name says size, number, layer, head, expert or kind, is refused with its
  name. If it can change only attention, the experts are read. The list of keys without effect is in
  `ndpsim/workload/models/known_keys.py`.
- A key that a file leaves out has the default of its class (`ndpsim/workload/models/class_defaults.json`).
- If a file has a key and its alias with two values (`num_experts` and `num_local_experts`), it is refused.
  Which of them counts depends on the type.
- Of each type whose class can build a model from its defaults, or from few changes to them
  (`docs/built_models.py`), the shape, number and layers of experts, the weights of all matrices and the
  cached values of a token in each layer are compared with that model, on the meta device. `pytest -m long
  tests/test_model_types.py` makes these models again (`NDPSIM_TRANSFORMERS`: a Python with transformers and
  torch).
- A layer of `longcat_flash` has two blocks of attention and a dense network, each of which is a layer here.
  Its experts, of which some have no weights, are those of the first block, whose network is their shared
  expert. The class needs their result only behind the second block, which is not modelled.
- A layer of `nemotron_h` is one block: attention, a state, a network or experts. Experts between a projection
  to a latent size and one back (`moe_latent_size`) are read without attention.
- Of two sizes of experts, for text and for images (`ernie4_5_vl_moe`), that for text is read.
- `per_layer_config` may change heads, their sizes, ranks and windows of single layers.
- A default may lack a value that every published file has, such as the number of experts. Then the row says
  so.

{read} of {all} types are read, {attention} of them with attention.

| type | experts | attention | why not |
|---|---|---|---|
{rows}
"""


def recorded() -> dict[str, dict[str, Any]]:
    """The configurations of all types, as recorded."""
    with gzip.open(RECORD, "rt", encoding="utf-8") as file:
        found: dict[str, dict[str, Any]] = json.load(file)
    return found


def built() -> dict[str, dict[str, Any]]:
    """What the models of all types have, as recorded."""
    with gzip.open(BUILT, "rt", encoding="utf-8") as file:
        found: dict[str, dict[str, Any]] = json.load(file)
    return found


def types(python: str) -> list[str]:
    """The names of all types that the packages of a Python have."""
    asked = [python, str(BUILDER), "--types"]
    return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.split()


def made(python: str, names: Sequence[str]) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    """The configurations of some types, and what their models have, made with the packages of a Python.

    Raises:
        RuntimeError: its transformers is not `VERSION`.
        subprocess.TimeoutExpired: a few types take longer than `_MOST_SECONDS`.
    """
    configurations: dict[str, dict[str, Any]] = {}
    built: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for first in range(0, len(names), _AT_ONCE):
            out = Path(folder) / "built.json"
            asked = [python, str(BUILDER), str(out), *names[first : first + _AT_ONCE]]
            subprocess.run(asked, check=True, stdout=subprocess.DEVNULL, timeout=_MOST_SECONDS)
            found = json.loads(out.read_text(encoding="utf-8"))
            if found["version"] != VERSION:
                raise RuntimeError(f"needs transformers {VERSION}, has {found['version']}")
            for name, one in found["types"].items():
                configurations[name] = _cleaned(one.pop("config"))
                built[name] = one
    return configurations, built


def _cleaned(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _cleaned(value) if isinstance(value, dict) else value
        for key, value in values.items()
        if value is not None and key not in _LEFT_OUT and not key.endswith("token_id")
    }


def read(name: str, values: Mapping[str, Any], folder: Path) -> MoeShape | str:
    """The shape of a configuration, or the message with which it is refused."""
    path = folder / f"{name}.json"
    path.write_text(json.dumps(values), encoding="utf-8")
    try:
        return load_model(path)
    except InputError as error:
        return _words(str(error))


def _words(message: str) -> str:
    """A message without its file and line, and without the list of names."""
    return re.sub(r"^\S*\.json(:\d+)?: ", "", message).split(" (known")[0].split("; unknown model_type")[0]


def rows() -> list[tuple[str, bool, bool, str]]:
    """For each type: whether experts and attention are read, and why not."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for name, values in recorded().items():
            if name.endswith("+"):  # with changed defaults
                continue
            shape = read(name, values, Path(folder))
            if isinstance(shape, str):
                found.append((name, False, False, shape))
            else:
                found.append((name, True, shape.attention is not None, _words(shape.attention_problem)))
    return found


def class_defaults() -> dict[str, dict[str, Any]]:
    """The keys whose absence the reader would take for another value than the class: see `class_defaults`."""
    found: dict[str, dict[str, Any]] = {}
    known = dict(CLASS_DEFAULTS)
    CLASS_DEFAULTS.clear()
    try:
        with tempfile.TemporaryDirectory() as folder:
            for name, values in recorded().items():
                if not name.endswith("+") and "text_config" not in values:
                    of_type = {key: values[key] for key in decisive(name, values, Path(folder))}
                    lists = sorted(key for key, value in of_type.items() if isinstance(value, list | dict))
                    plain = {
                        key: value
                        for key, value in of_type.items()
                        if key not in lists and not _follows_another(name, key)
                    }
                    if of_type:
                        found[name] = {"defaults": plain, "lists": lists}
    finally:
        CLASS_DEFAULTS.update(known)
    return found


def _follows_another(name: str, key: str) -> bool:
    """Whether a class takes the default of a key from others: it is another one where these are changed."""
    changed = recorded().get(f"{name}+", {})
    asked = runpy.run_path(str(BUILDER))["CHANGED"].get(name, {})
    return key in changed and key not in asked and changed[key] != recorded()[name][key]


def decisive(name: str, values: Mapping[str, Any], folder: Path) -> list[str]:
    """The keys without which a type's defaults are read, but as another shape."""
    whole = read(name, values, folder)
    if isinstance(whole, str):
        return []
    found = []
    for key in values:
        if key == "model_type":
            continue
        other = read(name, {one: value for one, value in values.items() if one != key}, folder)
        if isinstance(other, str):
            continue
        nothing = {"attention_problem": "", "context": None}
        if other.attention is None:
            nothing |= {"attention": None, "residual": None}
        if replace(whole, **nothing) != replace(other, **nothing):
            found.append(key)
    return found


def text() -> str:
    """The page."""
    table, word = rows(), {True: "read", False: "no"}
    return TEXT.format(
        version=VERSION,
        all=len(table),
        read=sum(experts for _, experts, _, _ in table),
        attention=sum(attention for _, _, attention, _ in table),
        rows="\n".join(
            f"| `{name}` | {word[experts]} | {word[attention]} | {why.replace('|', '/')} |"
            for name, experts, attention, why in table
        ),
    )


if __name__ == "__main__":
    if "--record" in sys.argv:
        asked = sys.argv[sys.argv.index("--record") + 1]
        for record, found in zip((RECORD, BUILT), made(asked, types(asked)), strict=True):
            plain = json.dumps(found, sort_keys=True, separators=(",", ":")).encode()
            record.write_bytes(gzip.compress(plain, 9, mtime=0))
    lines = ",\n".join(
        f"{json.dumps(name)}: {json.dumps(one)}" for name, one in sorted(class_defaults().items())
    )
    FILE.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    CLASS_DEFAULTS.clear()
    CLASS_DEFAULTS.update(json.loads(FILE.read_text(encoding="utf-8")))
    PAGE.write_text(text(), encoding="utf-8")
