"""Builds the model of each type of Transformers on the meta device, and writes what it has: see model_types.py.

python docs/built_models.py OUT.json [TYPE...]    with transformers and torch installed, and without ndpsim

For each type: `matrices`, the number of weights in its matrices; `experts`, the shape of each tensor of
routed experts with the number of layers that have it; `cached`, for each layer the values that its cache has
of a token; or `not_built`, the reason. The defaults of a class may lack a value: then nothing is built.
"""

from __future__ import annotations

import json
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_TOKENS = 4
_SEVERAL = re.compile(r"\.\d+\.")
# The part of a model with images or sound that reads text.
_TEXT = re.compile(r"(^|\.)(language_model|text_model|thinker|llm)\.")
_OTHER = re.compile(r"(^|\.)(vision|visual|vit|audio|multi_modal|projector|image|talker|encoder|mtp|speech)")
_CACHED = ("keys", "values", "indexer_keys")


def text_types() -> Iterator[tuple[str, str]]:
    """Each type whose configuration names experts, and the name of its class of models."""
    import transformers  # noqa: PLC0415
    from transformers.models.auto import modeling_auto as auto  # noqa: PLC0415
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES  # noqa: PLC0415

    lists = (
        auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
        auto.MODEL_MAPPING_NAMES,
    )
    for name in sorted(CONFIG_MAPPING_NAMES):
        try:
            values = transformers.AutoConfig.for_model(name).to_dict()
        except Exception:  # needs another configuration, or another package
            continue
        if "expert" in json.dumps(values, default=str):
            found = next((names[name] for names in lists if name in names), "")
            yield name, found if isinstance(found, str) else found[0]


def built(name: str, class_name: str) -> dict[str, Any]:
    """What a model of this type has."""
    import torch  # noqa: PLC0415
    import transformers  # noqa: PLC0415

    if not class_name:
        return {"not_built": "no class of models"}
    try:
        config = transformers.AutoConfig.for_model(name)
        config._attn_implementation = "eager"
        with torch.device("meta"):
            model = getattr(transformers, class_name)(config).eval()
    except Exception as error:
        return {"not_built": f"{type(error).__name__}: {error}"[:200]}
    found: dict[str, Any] = _weights(model)
    try:
        return found | {"cached": _cached(model)}
    except Exception as error:  # such as experts that need values
        return found | {"not_run": f"{type(error).__name__}: {error}"[:200]}


def _weights(model: Any) -> dict[str, Any]:
    named = [(name, parameter.shape) for name, parameter in model.named_parameters()]
    if any(_TEXT.search(name) for name, _ in named):
        named = [(name, shape) for name, shape in named if _TEXT.search(name) or name.startswith("lm_head")]
    named = [(name, shape) for name, shape in named if not _OTHER.search(name)]
    matrices, parts, experts = 0, Counter[str](), Counter[str]()
    for name, shape in named:
        if len(shape) < 2 or "bias" in name or "norm" in name:
            continue
        matrices += shape.numel()
        parts[_SEVERAL.sub(".N.", name)] += shape.numel()
        if "expert" in name and "shared" not in name and len(shape) == 3:
            experts[f"{_SEVERAL.sub('.N.', name)} {list(shape)}"] += 1
    return {"matrices": matrices, "experts": dict(experts), "parts": dict(parts)}


def _cached(model: Any) -> list[int]:
    import torch  # noqa: PLC0415

    for module in model.modules():
        if type(module).__name__.endswith("Experts"):  # which tokens they have needs values
            module.forward = lambda states, *rest, **more: torch.zeros_like(states)
    with torch.no_grad(), torch.device("meta"):
        cache = model(input_ids=torch.zeros(1, _TOKENS, dtype=torch.long), use_cache=True).past_key_values
    return [
        sum(value.numel() for name in _CACHED if hasattr(value := getattr(layer, name, None), "numel"))
        // _TOKENS
        for layer in cache.layers
    ]


def main(path: str, *types: str) -> None:
    """Write what the types have; all of them if none is named."""
    import transformers  # noqa: PLC0415

    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    found = {}
    for name, class_name in text_types():
        if not types or name in types:
            found[name] = built(name, class_name)
            print(name, found[name].get("not_built") or found[name].get("not_run", ""), flush=True)
    Path(path).write_text(json.dumps({"version": transformers.__version__, "types": found}), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
