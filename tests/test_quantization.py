"""Bits of weights from a `quantization_config`: schemes by their files, lists of modules, sizes, overrides."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from builders.small_config import CONFIG
from calls import call
from mistakes import mistake
from ndpsim.base.errors import InputError
from ndpsim.inference.layers.weights import run_weights
from ndpsim.inference.processors.weights import expert_format_of
from ndpsim.studies.sweeps.command import weight_format
from ndpsim.workload.models import load_model
from ndpsim.workload.models.weights import WeightFile, own_weight_file

SMALL = {**CONFIG, "hidden_size": 2048, "intermediate_size": 1024, "num_attention_heads": 16}

FP8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
MXFP4 = {
    "quant_method": "mxfp4",
    "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "lm_head"],
}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": False}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}
BNB = {
    "quant_method": "bitsandbytes",
    "load_in_4bit": True,
    "bnb_4bit_quant_type": "nf4",
    "bnb_4bit_use_double_quant": True,
}
MODELOPT = {
    "quant_method": "modelopt",
    "quant_algo": "NVFP4",
    "ignore": ["lm_head", "model.layers.*.self_attn*"],
}


def compressed(weights: dict[str, Any], form: str, **more: Any) -> dict[str, Any]:
    """A configuration of compressed-tensors with one group."""
    group = {"targets": ["Linear"], "weights": weights, **more.pop("group", {})}
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
    } | more


PACKED = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32}


def file_of(folder: Path, quantization: object, **changed: Any) -> WeightFile | None:
    """The weights of a small model with that configuration."""
    path = folder / "config.json"
    path.write_text(json.dumps(SMALL | {"quantization_config": quantization} | changed))
    return own_weight_file(load_model(path))


@pytest.mark.parametrize(
    ("quantization", "experts", "attention"),
    [
        (FP8, 8 + 32 / 128**2, 8 + 32 / 128**2),
        (FP8 | {"modules_to_not_convert": ["self_attn"]}, 8 + 32 / 128**2, 8 + 32 / 128**2),
        (FP8 | {"modules_to_not_convert": ["model.layers.0.self_attn", "model.layers.1.self_attn"]}, 8 + 32 / 128**2, 16),
        (FP8 | {"ignored_layers": [r".*\.self_attn"]}, 8 + 32 / 128**2, 16),
        (FP8 | {"weight_block_size": None}, 8, 8),
        (FP8 | {"scale_fmt": "ue8m0", "expert_dtype": "fp4"}, 4.25, 8 + 8 / 128**2),
        (MXFP4, 4.25, 16),
        (GPTQ, 4 + 20 / 128, 4 + 20 / 128),
        (GPTQ | {"bits": 3, "group_size": 64}, 3 + 19 / 64, 3 + 19 / 64),
        (GPTQ | {"dynamic": {r"-:.*self_attn": {}}}, 4 + 20 / 128, 16),
        (GPTQ | {"dynamic": {r"+:.*self_attn": {"bits": 8}}}, 4 + 20 / 128, 8 + 24 / 128),
        (AWQ, 4 + 20 / 128, 4 + 20 / 128),
        (AWQ | {"zero_point": False, "modules_to_not_convert": ["q_proj", "k_proj", "v_proj", "o_proj"]}, 4 + 16 / 128, 16),
        (BNB, 4 + 8 / 64, 4 + 8 / 64),
        (BNB | {"bnb_4bit_use_double_quant": False}, 4.5, 4.5),
        (MODELOPT, 4.5, 16),
        (MODELOPT | {"quant_algo": "FP8", "ignore": []}, 8, 8),
        (compressed(PACKED, "pack-quantized"), 4.5, 4.5),
        (compressed(PACKED | {"symmetric": False}, "pack-quantized"), 4 + 20 / 32, 4 + 20 / 32),
        (compressed(PACKED, "pack-quantized", ignore=["re:.*self_attn.*", "lm_head"]), 4.5, 16),
        (compressed(PACKED | {"group_size": 128}, "int-quantized"), 8.125, 8.125),
        (compressed(PACKED | {"num_bits": 2, "group_size": 128}, "int-quantized"), 8.125, 8.125),
        (compressed({"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}, "nvfp4-pack-quantized"), 4.5, 4.5),
        (compressed({"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]}, "float-quantized"), 8 + 16 / 128**2, 8 + 16 / 128**2),
        (compressed(PACKED, "mixed-precision", group={"format": "int-quantized"}), 8.5, 8.5),
        (compressed(PACKED, "pack-quantized", quantization_status="frozen"), 16, 16),
        (compressed(PACKED, "dense"), 16, 16),
        # Half of the weights, and two bits of place for each of them.
        (compressed(PACKED | {"group_size": 128}, "marlin-24"), 4 / 2 + 1 + 16 / 128, 4 / 2 + 1 + 16 / 128),
        (compressed(PACKED | {"num_bits": 8, "group_size": 64}, "marlin-24"), 8 / 2 + 1 + 16 / 64, 8 / 2 + 1 + 16 / 64),
        (compressed(PACKED | {"symmetric": False}, "int-quantized"), 8 + 24 / 32, 8 + 24 / 32),
        (compressed({"num_bits": 4, "type": "float", "group_size": 32}, "mxfp4-pack-quantized"), 4.25, 4.25),
        (compressed({"num_bits": 8, "type": "float", "group_size": 32}, "mxfp8-quantized"), 8.25, 8.25),
        (compressed({"num_bits": 8, "type": "float"}, "naive-quantized"), 8, 8),
        (compressed({"num_bits": 4, "group_size": 64}, "mixed-precision"), 4.25, 4.25),
        (compressed({"num_bits": 8, "group_size": 64}, "mixed-precision"), 8.25, 8.25),
        (MODELOPT | {"quant_algo": "MXFP8", "ignore": []}, 8.25, 8.25),
        (MODELOPT | {"quant_algo": "W4A8_MXFP4_FP8", "ignore": []}, 4.25, 4.25),
        (MODELOPT | {"quant_algo": "W4A16_AWQ", "ignore": []}, 4.125, 4.125),
        (MODELOPT | {"quant_algo": "FP8_PB_WO", "ignore": []}, 8 + 32 / 128**2, 8 + 32 / 128**2),
        ({"quant_method": "auto-round", "bits": 4}, 4 + 20 / 128, 4 + 20 / 128),
        ({"quant_method": "auto-round", "bits": 4, "group_size": 32}, 4 + 20 / 32, 4 + 20 / 32),
    ],
)  # fmt: skip
def test_bits_are_those_that_the_scheme_stores(quantization, experts, attention, tmp_path: Path) -> None:
    file = file_of(tmp_path, quantization)
    assert file is not None
    found = float(file.bits["gate"]), float(file.bits["attention"])
    # A scale of a row is so little that only whole blocks are exact.
    assert found == (pytest.approx(experts, rel=1e-6), pytest.approx(attention, rel=1e-6))
    assert (file.bits["embedding"], file.bits["head"], file.bits["router"]) == (16, 16, 16)


def test_a_row_with_one_scale(tmp_path: Path) -> None:
    channel = compressed({"num_bits": 8, "type": "int", "strategy": "channel"}, "int-quantized")
    file = file_of(tmp_path, channel)
    assert file is not None
    assert (float(file.bits["gate"]), float(file.bits["down"])) == (8 + 16 / 2048, 8 + 16 / 1024)


@pytest.mark.parametrize(
    "quantization",
    [
        {"quant_method": "bitsandbytes", "load_in_8bit": True},
        MODELOPT | {"quant_algo": "FP8_PER_CHANNEL_PER_TOKEN", "ignore": []},
        MODELOPT | {"quant_algo": "W8A8_SQ_PER_CHANNEL", "ignore": []},
    ],
)
def test_a_row_with_one_scale_of_32_bits(quantization, tmp_path: Path) -> None:
    file = file_of(tmp_path, quantization)
    assert file is not None
    assert (float(file.bits["gate"]), float(file.bits["down"])) == (8 + 32 / 2048, 8 + 32 / 1024)


def test_groups_of_layers_have_their_own_bits(tmp_path: Path) -> None:
    """The first layer in 8 bits: half of the weights."""
    wide = {
        "targets": [r"re:.*layers\.0\..*experts.*"],
        "weights": PACKED | {"num_bits": 8},
        "format": "pack-quantized",
    }
    narrow = {"targets": ["Linear"], "weights": PACKED, "format": "pack-quantized"}
    file = file_of(
        tmp_path,
        {"quant_method": "compressed-tensors", "config_groups": {"group_0": wide, "group_1": narrow}},
    )
    assert file is not None
    assert float(file.bits["gate"]) == (8.5 + 4.5) / 2


def test_an_expert_has_the_groups_of_the_file(tmp_path: Path) -> None:
    for quantization, words in (
        (GPTQ, "4 bits, scale of 16 and zero point of 4 bits a group of 128"),
        (MODELOPT, "4 bits, scale of 8 bits a group of 16"),
        (MXFP4, "4 bits, scale of 8 bits a group of 32"),
        (FP8, "8 bits"),
    ):
        file = file_of(tmp_path, quantization)
        assert file is not None
        assert str(expert_format_of(file).gate) == words


def test_a_file_of_modelopt_beside_the_configuration_counts(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SMALL))
    quantization = {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head"]}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps({"quantization": quantization}))
    file = own_weight_file(load_model(tmp_path / "config.json"))
    assert file is not None
    assert float(file.bits["gate"]) == 4.5


def test_a_wrapped_model_has_the_scheme_outside(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"text_config": SMALL, "quantization_config": FP8}))
    file = own_weight_file(load_model(tmp_path))
    assert file is not None
    assert 8 < file.bits["gate"] < 8.01


def test_without_a_scheme_the_weights_are_plain(tmp_path: Path) -> None:
    assert file_of(tmp_path, None) is None
    assert file_of(tmp_path, FP8 | {"dequantize": True}) is None


def test_options_override_the_file(tmp_path: Path) -> None:
    file = file_of(tmp_path, GPTQ)
    model = load_model(tmp_path)
    assert run_weights(model, None, None, None).file == file
    changed = run_weights(model, 8, None, None)
    assert (changed.bits, changed.format, changed.to_dict()["dense_bits"]["attention"]) == (
        8,
        None,
        4 + 20 / 128,
    )
    changed = run_weights(model, None, 16, None)
    assert (changed.dense, changed.to_dict()["bits"]["gate"]) == (16, 4 + 20 / 128)
    assert run_weights(model, 16, 16, None).file is None
    named = run_weights(model, None, None, "q8_0").file
    assert named is not None
    assert named.name == "q8_0"
    assert weight_format({"model": str(tmp_path)}).bits() == 4
    assert weight_format({"model": str(tmp_path), "bits": 8}).bits() == 8


def test_a_line_says_what_is_taken(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps(SMALL | {"quantization_config": GPTQ | {"group_size": 64}})
    )
    err = call("show", "layout", "localized", "--model", tmp_path)[2]
    assert "quantization_config" in err
    assert "gate 4.312" in err


@pytest.mark.parametrize(("factor", "said"), [(1.0, False), (1.01, False), (1.5, True)])
def test_a_size_that_differs_from_the_index_is_said(
    factor: float, said: bool, tmp_path: Path, caplog
) -> None:
    file = file_of(tmp_path, GPTQ | {"group_size": 32})
    assert file is not None
    total = {"metadata": {"total_size": int(file.bytes * factor)}, "weight_map": {}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(total))
    own_weight_file(load_model(tmp_path))
    assert any("its index" in record.getMessage() for record in caplog.records) == said


@pytest.mark.parametrize(
    ("quantization", "words"),
    [
        ([], None),
        ("fp8", "type config.json quantization_config"),
        (FP8 | {"weight_block_size": [128]}, "form config.json quantization_config.weight_block_size"),
        (GPTQ | {"bits": 0}, "range config.json quantization_config.bits"),
        (GPTQ | {"bits": ...}, "missing config.json quantization_config.bits"),
        (
            AWQ | {"modules_to_not_convert": "lm_head"},
            "type config.json quantization_config.modules_to_not_convert",
        ),
        (
            FP8 | {"modules_to_not_convert": [3]},
            "form config.json quantization_config.modules_to_not_convert",
        ),
        (GPTQ | {"dynamic": {"-:(a+)+b": {}}}, "form config.json quantization_config.dynamic.-:(a+)+b"),
        (
            compressed(PACKED, "pack-quantized", ignore=["re:("]),
            "form config.json quantization_config.ignore",
        ),
        (
            compressed(PACKED, "pack-quantized") | {"config_groups": {}},
            "missing config.json quantization_config.config_groups",
        ),
    ],
)
def test_what_is_malformed_is_refused_with_its_key(quantization, words: str | None, tmp_path: Path) -> None:
    if isinstance(quantization, dict):
        quantization = {key: value for key, value in quantization.items() if value is not ...}
    if words is None:
        assert file_of(tmp_path, quantization) is None
        return
    with pytest.raises(InputError) as caught:
        file_of(tmp_path, quantization)
    assert re.sub(r"(?<=json):\d+", "", mistake(caught.value)) == words


@pytest.mark.parametrize(
    "quantization",
    [{"quant_method": "hqq"}, MODELOPT | {"quant_algo": "NVFP5"}, compressed(PACKED, "sparse-pack"), {}],
)
def test_a_scheme_that_is_unknown_asks_for_bits(quantization: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SMALL | {"quantization_config": quantization}))
    model = load_model(tmp_path)
    if not quantization:
        assert own_weight_file(model) is None
        return
    with pytest.raises(InputError, match="give bits or a weight file") as caught:
        own_weight_file(model)
    assert (caught.value.code, caught.value.key) == ("unsupported", "weights")
    assert run_weights(model, 4, 16, None).bits == 4
