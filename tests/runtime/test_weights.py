"""Checkpoints: what is saved is loaded, whole or in slices, and everything that is wrong is told at once."""

import json
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tiny_models import TINY, plain_names, tiny
from transformers_oracle import GOLDEN, is_outer

from meshwright.errors import InputError, UnsupportedError
from meshwright.model.families.architecture_table import FAMILIES
from meshwright.model.families.numerics_table import FAMILY_NUMERICS
from meshwright.model.named_tensors import stored_shapes
from meshwright.runtime.weights.family_tensor_names import CHECKPOINTS, prefixed, stored_places
from meshwright.runtime.weights.load import load
from meshwright.runtime.weights.random_tensors import random_tensors
from meshwright.runtime.weights.safetensors_index import INDEX, SINGLE
from meshwright.runtime.weights.save import save
from meshwright.runtime.weights.stored_parts import Part

RECORDED = json.loads(GOLDEN.read_text())["names"]


def saved(folder, name="qwen3", **options):
    tensors = random_tensors(tiny(name), 1, torch.float32)
    save(folder, tiny(name), tensors, **options)
    return tensors


def problems(call, *arguments, **options):
    with pytest.raises(InputError) as caught:
        call(*arguments, **options)
    assert all(problem.suggestion for problem in caught.value.problems)
    return {problem.field: problem.rule for problem in caught.value.problems}


def changed(folder, change):
    """Rewrite the single file of a checkpoint after ``change`` to its tensors."""
    tensors = load_file(folder / SINGLE)
    change(tensors)
    save_file(tensors, folder / SINGLE)


def test_every_family_that_can_be_run_has_names():
    assert CHECKPOINTS.keys() == FAMILY_NUMERICS.keys() < FAMILIES.keys()


@pytest.mark.parametrize("name", TINY)
def test_what_is_saved_is_loaded(name, tmp_path):
    tensors = saved(tmp_path, name)
    loaded = load(tmp_path, tiny(name))
    assert list(loaded) == list(stored_shapes(tiny(name)))
    assert all(torch.equal(loaded[key], tensor) for key, tensor in tensors.items())
    assert {path.name for path in tmp_path.iterdir()} == {SINGLE}


@pytest.mark.parametrize("name", plain_names())
def test_stored_names_and_shapes_are_those_that_transformers_writes(name):
    checkpoint = CHECKPOINTS[tiny(name).architecture.family]
    ours = {
        prefixed(checkpoint.prefixes[0], part.name): list(part.stored_shape)
        for place in stored_places(tiny(name)).values()
        for part in place.parts
    }
    second = f".{checkpoint.layers}.1."
    assert {key: shape for key, shape in ours.items() if is_outer(key) or second in key} == RECORDED[name]


@pytest.mark.parametrize("name", TINY)
def test_parts_tile_what_is_stored(name):
    """Every stored element belongs to exactly one of ours."""
    counts = {}
    for part in (part for place in stored_places(tiny(name)).values() for part in place.parts):
        whole = counts.setdefault(part.name, torch.zeros(part.stored_shape))
        mine = torch.zeros(part.stored_shape)
        part.put(torch.ones(part.shape), mine)
        whole += mine
    assert all(bool((whole == 1).all()) for whole in counts.values())


def test_names_and_forms_in_the_file_are_the_familys(tmp_path):
    ours = saved(tmp_path / "phi3", "phi3")
    stored = load_file(tmp_path / "phi3" / SINGLE)
    qkv = [ours[f"layers.2.self_attn.{which}_proj.weight"] for which in "qkv"]
    assert torch.equal(stored["model.layers.2.self_attn.qkv_proj.weight"], torch.cat(qkv))
    ours = saved(tmp_path / "gpt2", "gpt2")
    stored = load_file(tmp_path / "gpt2" / SINGLE)
    assert torch.equal(
        stored["transformer.h.1.mlp.c_fc.weight"], ours["layers.1.mlp.up_proj.weight"].T.contiguous()
    )
    ours = saved(tmp_path / "bloom", "bloom")
    stored = load_file(tmp_path / "bloom" / SINGLE)["transformer.h.0.self_attention.query_key_value.bias"]
    second_head = [ours[f"layers.0.self_attn.{which}_proj.bias"][8:16] for which in "qkv"]
    assert torch.equal(stored[24:48], torch.cat(second_head))


@settings(deadline=None, max_examples=36)
@given(data=st.data())
def test_a_slice_is_that_of_the_whole(data, tmp_path_factory):
    name = data.draw(
        st.sampled_from(
            ["bloom", "glm4", "gpt2", "llama biases", "phi3", "mixtral", "deepseek_v3", "gpt_oss"]
        )
    )
    folder = tmp_path_factory.mktemp("slices")
    tensors = saved(folder, name)
    wanted = {}
    for key in data.draw(st.lists(st.sampled_from(sorted(tensors)), min_size=1, max_size=8)):
        sizes = tensors[key].shape[: data.draw(st.integers(0, tensors[key].dim()))]
        ends = [sorted(data.draw(st.tuples(st.integers(0, n), st.integers(0, n)))) for n in sizes]
        wanted[key] = tuple(slice(*pair) for pair in ends)
    loaded = load(folder, tiny(name), wanted)
    assert loaded.keys() == wanted.keys()
    for key, cut in wanted.items():
        assert torch.equal(loaded[key], tensors[key][cut])


def test_a_slice_reads_no_more_than_it_needs():
    class Recorded:
        def __init__(self):
            self.read = []

        def __getitem__(self, key):
            self.read.append(key)
            return torch.zeros([cut.stop - cut.start for cut in key])

    stored = Recorded()
    part = Part(name="fused", shape=(8, 6), rows=24, first=2, runs=4)  # two rows of each of four heads
    assert part.read(stored, (slice(3, 6), slice(1, 4))).shape == (3, 3)
    assert stored.read == [
        (slice(9, 10), slice(1, 4)),
        (slice(14, 16), slice(1, 4)),
    ]


def test_rows_that_take_turns_are_read_at_once(tmp_path):
    ours = saved(tmp_path, "gpt_oss")
    stored = load_file(tmp_path / SINGLE)
    both = stored["model.layers.1.mlp.experts.gate_up_proj"]
    gate, up = (ours[f"layers.1.mlp.experts.{which}_proj.weight"] for which in ("gate", "up"))
    assert torch.equal(both[:, :, ::2].transpose(1, 2), gate)
    assert torch.equal(both[:, :, 1::2].transpose(1, 2), up)
    biases = stored["model.layers.1.mlp.experts.gate_up_proj_bias"]
    assert torch.equal(biases[:, 1::2], ours["layers.1.mlp.experts.up_proj.bias"])


def test_experts_that_are_not_wanted_are_not_read(tmp_path):
    tensors, name = saved(tmp_path, "mixtral", max_file_bytes=1), "layers.2.mlp.experts.up_proj.weight"
    index = json.loads((tmp_path / INDEX).read_text())["weight_map"]
    others = [f"model.layers.2.block_sparse_moe.experts.{expert}.w3.weight" for expert in (0, 1, 4, 5)]
    for other in others:
        (tmp_path / index[other]).write_bytes(b"")
    assert torch.equal(load(tmp_path, tiny("mixtral"), {name: (slice(2, 4),)})[name], tensors[name][2:4])
    assert "weights" in problems(load, tmp_path, tiny("mixtral"), {name: (slice(4, 5),)})


def test_layers_that_predict_further_tokens_are_passed_over(tmp_path):
    saved(tmp_path, "deepseek_v3")
    names = ("eh_proj.weight", "shared_head.head.weight", "self_attn.o_proj.weight")
    further = {f"model.layers.3.{name}": torch.ones(1) for name in names}
    changed(tmp_path, lambda tensors: tensors.update(further))
    assert load(tmp_path, tiny("deepseek_v3"))
    changed(tmp_path, lambda tensors: tensors.pop("model.layers.3.eh_proj.weight"))
    assert problems(load, tmp_path, tiny("deepseek_v3")).keys() == {
        f"model.layers.3.{name}" for name in names[1:]
    }


@pytest.mark.parametrize("room", [1, 40_000, 10**9])
def test_large_checkpoints_are_cut_into_files_with_an_index(room, tmp_path):
    tensors = saved(tmp_path, max_file_bytes=room)
    files = sorted(path.name for path in tmp_path.glob("*.safetensors"))
    stored = len({part.name for place in stored_places(tiny("qwen3")).values() for part in place.parts})
    assert all(torch.equal(load(tmp_path, tiny("qwen3"))[key], tensor) for key, tensor in tensors.items())
    if room == 10**9:
        assert files == [SINGLE]
        return
    index = json.loads((tmp_path / INDEX).read_text())
    assert set(index["weight_map"].values()) == set(files)
    assert index["metadata"]["total_size"] == sum(tensor.nbytes for tensor in tensors.values())
    assert len(files) == (stored if room == 1 else 8)
    for file in files:
        with safe_open(tmp_path / file, "pt") as handle:
            bytes_of = [handle.get_tensor(key).nbytes for key in handle.keys()]  # noqa: SIM118
            assert sum(bytes_of) <= room or len(bytes_of) == 1
            assert handle.metadata() == {"format": "pt"}


@pytest.mark.parametrize(
    ("name", "prefix"),
    [
        ("llama", ""),
        ("gpt2 untied", ""),
        ("llama", "language_model.model."),
        ("qwen3", "model.language_model."),
    ],
)
def test_any_known_prefix_is_found(name, prefix, tmp_path):
    tensors = saved(tmp_path, name, prefix=prefix)
    with safe_open(tmp_path / SINGLE, "pt") as handle:
        heads = [key for key in handle.keys() if "lm_head" in key]  # noqa: SIM118
    outer = "language_model." if prefix == "language_model.model." else ""
    assert heads == ([] if name == "qwen3" else [f"{outer}lm_head.weight"])
    assert all(torch.equal(load(tmp_path, tiny(name))[key], tensor) for key, tensor in tensors.items())


def test_what_other_tools_write_beside_the_weights_is_passed_over(tmp_path):
    saved(tmp_path / "gpt2", "gpt2")
    names = ("transformer.h.0.attn.bias", "transformer.h.0.attn.masked_bias", "lm_head.weight")
    changed(tmp_path / "gpt2", lambda tensors: tensors.update({name: torch.ones(1) for name in names}))
    assert load(tmp_path / "gpt2", tiny("gpt2"))
    saved(tmp_path / "qwen", "qwen3_vl_text")
    names = ("model.visual.patch_embed.proj.weight", "visual.merger.ln_q.weight")
    changed(tmp_path / "qwen", lambda tensors: tensors.update({name: torch.ones(1) for name in names}))
    assert load(tmp_path / "qwen", tiny("qwen3_vl_text"))


def test_all_that_is_wrong_with_a_checkpoint_is_told_at_once(tmp_path):
    def spoil(tensors):
        del tensors["model.norm.weight"]
        tensors["model.layers.0.mlp.extra.weight"] = torch.ones(1)
        tensors["model.layers.1.self_attn.qkv_proj.weight"] = torch.ones(3, 48)
        tensors["model.layers.2.input_layernorm.weight"] = torch.ones(48, dtype=torch.int32)

    saved(tmp_path, "phi3")
    changed(tmp_path, spoil)
    assert problems(load, tmp_path, tiny("phi3")) == {
        "model.norm.weight": "is missing from the checkpoint",
        "model.layers.0.mlp.extra.weight": "is no tensor of tiny phi3",
        "model.layers.1.self_attn.qkv_proj.weight": "has the shape [3, 48], must have [96, 48]",
        "model.layers.2.input_layernorm.weight": "is stored as I32, must be one of F64, F32, BF16, F16",
    }


def test_the_checkpoint_of_another_model_is_refused(tmp_path):
    saved(tmp_path, "gpt2")
    with pytest.raises(InputError) as caught:
        load(tmp_path, tiny("llama"))
    missing, extra = caught.value.problems
    assert missing.rule.startswith(
        "are missing from the checkpoint: lm_head.weight, model.embed_tokens.weight"
    )
    assert extra.rule.startswith("are no tensor of tiny llama: transformer.h.0")


def test_a_few_tensors_that_are_missing_are_told_one_by_one(tmp_path):
    saved(tmp_path, "qwen3")
    changed(tmp_path, lambda tensors: tensors.pop("model.norm.weight"))
    found = problems(load, tmp_path, tiny("qwen3"))
    assert found == {"model.norm.weight": "is missing from the checkpoint"}


def test_wanting_what_the_model_has_not_is_refused(tmp_path):
    saved(tmp_path)
    found = problems(load, tmp_path, tiny("qwen3"), {"layers.3.input_layernorm.weight": ()})
    assert found == {"layers.3.input_layernorm.weight": "the model has no tensor of this name"}


def index_with(folder, text):
    folder.mkdir(exist_ok=True)
    (folder / INDEX).write_bytes(text if isinstance(text, bytes) else text.encode())


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff\xfe\x00",
        "[" * 100_000,
        "[]",
        "{}",
        '{"weight_map": []}',
        '{"weight_map": {}}',
        '{"weight_map": {"a": 1}}',
        '{"weight_map": {"a": "../other.safetensors"}}',
        '{"weight_map": {"a": "/etc/passwd"}}',
        '{"weight_map": {"a": "absent.safetensors"}}',
        '{"weight_map": {"a": "bad\\u0000name.safetensors"}}',
    ],
)
def test_a_damaged_index_is_refused(text, tmp_path):
    index_with(tmp_path, text)
    assert problems(load, tmp_path, tiny("qwen3"))


@pytest.mark.parametrize(
    "damage", [b"", b"\xff" * 100, (2**60).to_bytes(8, "little"), b"\x02\0\0\0\0\0\0\0{]"]
)
def test_a_damaged_file_is_refused(damage, tmp_path):
    (tmp_path / SINGLE).write_bytes(damage)
    assert "weights" in problems(load, tmp_path, tiny("qwen3"))


def test_a_cut_off_file_is_refused(tmp_path):
    saved(tmp_path)
    data = (tmp_path / SINGLE).read_bytes()
    (tmp_path / SINGLE).write_bytes(data[:-1000])
    assert "weights" in problems(load, tmp_path, tiny("qwen3"))


def test_an_index_that_names_the_wrong_file_is_refused(tmp_path):
    saved(tmp_path, max_file_bytes=40_000)
    index = json.loads((tmp_path / INDEX).read_text())
    index["weight_map"]["model.norm.weight"] = "model-00001-of-00008.safetensors"
    index_with(tmp_path, json.dumps(index))
    assert "which does not hold it" in problems(load, tmp_path, tiny("qwen3"))["model.norm.weight"]


def test_a_folder_without_a_checkpoint_is_refused(tmp_path):
    assert "weights" in problems(load, tmp_path / "nowhere", tiny("qwen3"))
    assert "weights" in problems(load, tmp_path, tiny("qwen3"))


def test_all_that_is_wrong_with_tensors_is_told_before_anything_is_written(tmp_path):
    tensors = random_tensors(tiny("phi3"), 1, torch.float32)
    del tensors["head.norm.weight"]
    tensors["layers.0.input_layernorm.weight"] = torch.ones(3)
    tensors["layers.1.self_attn.k_proj.weight"] = tensors["layers.1.self_attn.k_proj.weight"].double()
    tensors["layers.9.x"] = torch.ones(1)
    found = problems(save, tmp_path / "new", tiny("phi3"), tensors, max_file_bytes=0, prefix="x.")
    assert set(found) == {
        "head.norm.weight",
        "layers.0.input_layernorm.weight",
        "layers.1.self_attn.k_proj.weight",
        "layers.9.x",
        "max_file_bytes",
        "prefix",
    }
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("room", [40_000, 10**9])
def test_a_checkpoint_is_not_written_over_another(room, tmp_path):
    tensors = saved(tmp_path, max_file_bytes=room)
    found = problems(save, tmp_path, tiny("qwen3"), tensors)
    assert found == {"folder": "there is a checkpoint already"}
    (tmp_path / "file").touch()
    assert problems(save, tmp_path / "file", tiny("qwen3"), tensors) == {"folder": "is no folder"}


def test_a_broken_save_leaves_nothing(tmp_path):
    class Failing(dict):
        """Tensors that cannot be had any more when two files have been written."""

        def __getitem__(self, name):
            if len(list(tmp_path.glob(".partial*"))) == 2:
                raise RuntimeError("the device is gone")
            return super().__getitem__(name)

    tensors = Failing(random_tensors(tiny("qwen3"), 1, torch.float32))
    with pytest.raises(RuntimeError, match="the device is gone"):
        save(tmp_path, tiny("qwen3"), tensors, max_file_bytes=40_000)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").touch()
    tensors = random_tensors(tiny("qwen3"), 1, torch.float32)
    found = problems(save, tmp_path / "file" / "folder", tiny("qwen3"), tensors)
    assert "cannot be written" in found["folder"]


def test_families_without_names_are_refused():
    model = tiny("llama")
    unknown = replace(model, architecture=replace(model.architecture, family="llame"))
    with pytest.raises(UnsupportedError, match="llama"):
        stored_places(unknown)
