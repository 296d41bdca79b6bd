"""The routing of a Hugging Face model while it runs: of tiny models with random weights."""

from __future__ import annotations

import numpy as np
import pytest

import ndpsim
from mistakes import refused

torch = pytest.importorskip("torch", reason="needs pip install 'ndpsim[capture]'")
transformers = pytest.importorskip("transformers", reason="needs pip install 'ndpsim[capture]'")

SMALL = dict(
    vocab_size=64,
    hidden_size=16,
    intermediate_size=8,
    num_hidden_layers=3,
    num_attention_heads=2,
    num_key_value_heads=2,
    pad_token_id=0,
    eos_token_id=None,
)
CONFIGS = {
    "mixtral": lambda: transformers.MixtralConfig(**SMALL, num_local_experts=8, num_experts_per_tok=2),
    "olmoe": lambda: transformers.OlmoeConfig(**SMALL, num_experts=8, num_experts_per_tok=3),
    "qwen3": lambda: transformers.Qwen3MoeConfig(
        **SMALL,
        num_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=8,
        head_dim=8,
        mlp_only_layers=[1],
    ),
    "deepseek-v3": lambda: transformers.DeepseekV3Config(
        **SMALL,
        n_routed_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=8,
        first_k_dense_replace=1,
        n_group=2,
        topk_group=1,
        q_lora_rank=8,
        kv_lora_rank=8,
        qk_rope_head_dim=4,
        qk_nope_head_dim=4,
        v_head_dim=8,
    ),
}
LAYERS = {"mixtral": (0, 1, 2), "olmoe": (0, 1, 2), "qwen3": (0, 2), "deepseek-v3": (1, 2)}


def tiny(name: str):
    torch.manual_seed(5)
    return transformers.AutoModelForCausalLM.from_config(CONFIGS[name]()).eval()


@pytest.mark.parametrize("name", CONFIGS)
def test_what_a_model_generates_is_recorded_pass_by_pass(name):
    model = tiny(name)
    prompts = torch.randint(1, 64, (4, 5))
    with ndpsim.capture_routing(model) as capture, torch.no_grad():
        model.generate(prompts, max_new_tokens=4, do_sample=False)
    trace = capture.routing()
    k = 3 if name == "olmoe" else 2
    assert trace.layers == LAYERS[name]
    assert trace.experts == 8
    assert trace.ids.shape == (3, len(trace.layers), 4, k)  # the first token comes from the prompt's pass
    assert trace.prefill_ids.shape == (len(trace.layers), 20, k)
    assert trace.prompt_lengths == (5, 5, 5, 5)


@pytest.mark.parametrize("name", ["mixtral", "olmoe", "qwen3"])
def test_recorded_experts_are_those_with_the_largest_logits(name):
    model = tiny(name)
    prompts = torch.randint(1, 64, (2, 6))
    with ndpsim.capture_routing(model) as capture, torch.no_grad():
        logits = model(prompts, output_router_logits=True).router_logits
    trace = capture.routing()
    k = trace.experts_per_token
    for row, of_layer in enumerate(logits):
        expected = np.sort(of_layer.topk(k).indices.numpy(), axis=1)
        assert np.array_equal(np.sort(trace.prefill_ids[row], axis=1), expected)


def test_experts_are_of_the_groups_that_a_router_chooses_first():
    model = tiny("deepseek-v3")
    with ndpsim.capture_routing(model) as capture, torch.no_grad():
        model(torch.randint(1, 64, (4, 8)))
    group = capture.routing().prefill_ids // 4  # two groups of four experts, of which one is chosen
    assert (group[..., 0] == group[..., 1]).all()
    assert len(np.unique(group)) == 2


def test_a_batch_is_recorded_as_its_sequences_would_be_alone():
    model = tiny("mixtral")
    prompts = torch.randint(1, 64, (3, 5))
    traces = []
    for chosen in (prompts, prompts[1:2]):
        with ndpsim.capture_routing(model) as capture, torch.no_grad():
            model(chosen)
        traces.append(capture.routing().prefill_ids)
    assert np.array_equal(np.sort(traces[0][:, 5:10], -1), np.sort(traces[1], -1))


def test_after_the_block_nothing_is_recorded():
    model = tiny("mixtral")
    with ndpsim.capture_routing(model) as capture, torch.no_grad():
        model(torch.ones((1, 4), dtype=torch.long))
    with torch.no_grad():
        model(torch.ones((1, 4), dtype=torch.long))
    assert len(capture.passes) == 1


def test_a_model_without_experts_is_refused():
    model = transformers.AutoModelForCausalLM.from_config(transformers.LlamaConfig(**SMALL))
    with (
        refused("unsupported model"),
        ndpsim.capture_routing(model),
    ):
        pass


def test_padded_prompts_are_refused():
    model = tiny("mixtral")
    with ndpsim.capture_routing(model), torch.no_grad(), refused("unsupported attention_mask"):
        model(torch.ones((1, 4), dtype=torch.long), attention_mask=torch.tensor([[0, 1, 1, 1]]))


def test_nothing_recorded_is_said():
    with ndpsim.capture_routing(tiny("mixtral")) as capture:
        pass
    with refused("form MixtralForCausalLM"):
        capture.routing()
