"""Records the routing of a Hugging Face model while it runs (``pip install 'ndpsim[capture]'``)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ndpsim.base.arguments import attribute_of
from ndpsim.base.errors import InputError, shown
from ndpsim.workload.routing.recorded import Pass, assembled
from ndpsim.workload.routing.trace import Routing

_ROUTER = re.compile(r"(?:.*\.)?layers\.(\d+)\.(?:.*\.)?(?:gate|router)")


class Capture:
    """Recorded choices of a model; `routing` turns them into a trace."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.passes: list[Pass] = []
        self.routers = _routers(model)

    def routing(self) -> Routing:
        """A trace of all recorded passes: the first and longer ones are prefill, the others are steps.

        Raises:
            InputError: nothing was recorded, or steps differ in their sequences.
        """
        recorded = assembled(self.passes, Path(type(self.model).__name__))
        experts = int(next(iter(self.routers.values())).weight.shape[0])
        return Routing(
            experts,
            recorded.layers,
            recorded.ids,
            recorded.prefill_ids,
            recorded.prompt_lengths,
            source={"captured": type(self.model).__name__},
        )

    def on_pass(self, module: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Called before each forward pass of the model."""
        tokens = next((value for value in (*arguments, *map(named.get, _INPUTS)) if value is not None), None)
        if tokens is None:
            raise InputError(
                "a pass without input_ids or inputs_embeds cannot be recorded", "unsupported", key="model"
            )
        batch, length = tokens.shape[:2]
        mask: Any = named.get("attention_mask")
        if getattr(mask, "ndim", 0) == 2 and not bool(mask.all()):
            raise InputError(
                "prompts are padded; give prompts of one length", "unsupported", key="attention_mask"
            )
        prefill = length > 1 or not self.passes
        lengths = (int(length),) * int(batch) if prefill else ()
        self.passes.append(Pass(f"pass {len(self.passes)}", prefill, lengths=lengths))

    def on_router(self, layer: int, parent: Any, output: Any) -> None:
        """Called after each router, with its result."""
        if self.passes:
            self.passes[-1].rows[layer] = list(_chosen(output, parent, self.model.config))


_INPUTS = ("input_ids", "inputs_embeds")


def _routers(model: Any) -> dict[int, Any]:
    """The routers of a model by layer: modules `gate` or `router` that are siblings of `experts`."""
    if attribute_of(model, "named_modules") is None:
        raise InputError(f"{shown(model)} is no model of PyTorch", "type", key="model")
    routers = {}
    for name, module in model.named_modules():
        match = _ROUTER.fullmatch(name)
        parent = model.get_submodule(name.rpartition(".")[0]) if match else None
        if match and hasattr(parent, "experts") and hasattr(module, "weight"):
            routers[int(match[1])] = module
    if not routers:
        problem = f"{type(model).__name__} has no layer with a gate or router beside experts"
        raise InputError(problem, "unsupported", key="model")
    return routers


def _chosen(output: Any, parent: Any, config: Any) -> NDArray[np.int64]:
    """The experts of each token, [token, k], from the result of a router: ids, or logits of all experts."""
    select = getattr(parent, "route_tokens_to_experts", None)
    tensors = output if isinstance(output, tuple) else (output,)
    ids = [tensor for tensor in tensors if not tensor.is_floating_point()]
    if not ids and select is not None:
        ids = [tensor for tensor in select(tensors[0]) if not tensor.is_floating_point()]
    if not ids:
        k = config.get_text_config().num_experts_per_tok
        ids = [tensors[0].topk(k, dim=-1).indices]
    chosen: NDArray[np.int64] = ids[0].detach().cpu().numpy().astype(np.int64)
    return chosen.reshape(-1, chosen.shape[-1])


def capture_routing(model: Any) -> AbstractContextManager[Capture]:
    """Record the routing of a Hugging Face model while the block runs.

    >>> with ndpsim.capture_routing(model) as capture:  # doctest: +SKIP
    ...     model.generate(input_ids, max_new_tokens=32)
    >>> capture.routing().save("mine.npz")  # doctest: +SKIP

    The prompts of a batch must have equal lengths; padding is refused.

    Args:
        model: a model of the package `transformers` that has experts.

    Raises:
        InputError: the model has no layer with experts.
    """
    return _recording(Capture(model))


@contextmanager
def _recording(capture: Capture) -> Iterator[Capture]:
    model = capture.model
    handles = [model.register_forward_pre_hook(capture.on_pass, with_kwargs=True)]
    names = {id(module): name for name, module in model.named_modules()}
    for layer, router in capture.routers.items():
        parent = model.get_submodule(names[id(router)].rpartition(".")[0])
        handles.append(
            router.register_forward_hook(
                lambda module, inputs, output, layer=layer, parent=parent: capture.on_router(
                    layer, parent, output
                )
            )
        )
    try:
        yield capture
    finally:
        for handle in handles:
            handle.remove()
