"""Checkpoints of models with an encoder: the names that transformers writes, and what is not a weight of them."""

import json

import pytest
import torch
from encoder_models import ENCODER_MODELS, encoder_model
from safetensors.torch import load_file, save_file
from transformers_oracle import GOLDEN

from meshwright.errors import InputError
from meshwright.runtime.weights.family_tensor_names import checkpoint_of, prefixed, stored_places
from meshwright.runtime.weights.load import load
from meshwright.runtime.weights.random_tensors import random_tensors
from meshwright.runtime.weights.safetensors_index import SINGLE
from meshwright.runtime.weights.save import save

RECORDED = json.loads(GOLDEN.read_text())["encoder_names"]


def saved(folder, name, **options):
    tensors = random_tensors(encoder_model(name), 1, torch.float32)
    save(folder, encoder_model(name), tensors, **options)
    return tensors


def changed(folder, change):
    """Rewrite the single file of a checkpoint after ``change`` to its tensors."""
    tensors = load_file(folder / SINGLE)
    change(tensors)
    save_file(tensors, folder / SINGLE)


@pytest.mark.parametrize("name", ENCODER_MODELS)
def test_stored_names_and_shapes_are_those_that_transformers_writes(name):
    prefix = checkpoint_of(encoder_model(name).architecture.family).prefixes[0]
    ours = {
        prefixed(prefix, part.name): list(part.stored_shape)
        for place in stored_places(encoder_model(name)).values()
        for part in place.parts
    }
    assert ours == RECORDED[name]


@pytest.mark.parametrize("room", [1, 10**9])
@pytest.mark.parametrize("name", ENCODER_MODELS)
def test_what_is_saved_is_loaded(name, room, tmp_path):
    tensors = saved(tmp_path, name, max_file_bytes=room)
    loaded = load(tmp_path, encoder_model(name))
    assert loaded.keys() == tensors.keys()
    assert all(torch.equal(loaded[key], tensor) for key, tensor in tensors.items())


@pytest.mark.parametrize(
    "cut", [(), (slice(3, 7),), (slice(0, 0),), (slice(2, 9), slice(5, 30)), (slice(None), slice(1))], ids=str
)
def test_a_slice_of_the_patch_matrix_is_that_of_the_whole(cut, tmp_path):
    tensors = saved(tmp_path, "qwen2_5_vl")
    name = "embed.patch_embed.weight"
    part = load(tmp_path, encoder_model("qwen2_5_vl"), {name: cut})[name]
    assert torch.equal(part, tensors[name][cut])


def test_a_patch_is_stored_by_channel_frame_row_and_column(tmp_path):
    tensors = saved(tmp_path, "qwen2_5_vl")
    stored = load_file(tmp_path / SINGLE)["visual.patch_embed.proj.weight"]
    assert stored.shape == (32, 3, 3, 2, 2)
    assert torch.equal(stored.flatten(1), tensors["embed.patch_embed.weight"])


@pytest.mark.parametrize("prefix", ["model.", "model.language_model.", "language_model.model.", ""])
def test_both_towers_are_found_under_any_known_prefix(prefix, tmp_path):
    tensors = saved(tmp_path, "qwen2_5_vl", prefix=prefix)
    names = set(load_file(tmp_path / SINGLE))
    tower = "model.visual." if prefix == "model.language_model." else "visual."
    assert f"{tower}merger.ln_q.weight" in names
    assert f"{prefix}norm.weight" in names
    loaded = load(tmp_path, encoder_model("qwen2_5_vl"))
    assert all(torch.equal(loaded[key], tensor) for key, tensor in tensors.items())


def test_a_tensor_of_the_vision_tower_is_needed_and_no_other_is_there(tmp_path):
    saved(tmp_path, "qwen2_5_vl")
    changed(tmp_path, lambda tensors: tensors.pop("visual.merger.mlp.0.bias"))
    changed(tmp_path, lambda tensors: tensors.update({"visual.blocks.3.norm1.weight": torch.ones(32)}))
    with pytest.raises(InputError) as caught:
        load(tmp_path, encoder_model("qwen2_5_vl"))
    assert {problem.field for problem in caught.value.problems} == {
        "visual.merger.mlp.0.bias",
        "visual.blocks.3.norm1.weight",
    }


def test_copies_of_t5s_table_and_an_unused_bias_are_passed_over(tmp_path):
    tensors = saved(tmp_path, "t5")
    copy, bias = tensors["embed.embed_tokens.weight"], torch.ones(8, 4)
    further = {
        f"{name}.weight": copy.clone() for name in ("encoder.embed_tokens", "decoder.embed_tokens", "lm_head")
    }
    further["decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"] = bias
    changed(tmp_path, lambda stored: stored.update(further))
    loaded = load(tmp_path, encoder_model("t5"))
    assert all(torch.equal(loaded[key], tensor) for key, tensor in tensors.items())
