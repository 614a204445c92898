"""Runs that train adapters: what they save, go on from, export, and merge."""

import json

import pytest

pytest.importorskip("torch")

import torch
from safetensors.torch import load_file
from tiny_models import tiny, tiny_config
from training_runs import small_run

from meshwright import api
from meshwright.errors import InputError, UnsupportedError
from meshwright.model.named_tensors import adapter_shapes, base_shapes
from meshwright.model.transforms.lora_adapters import with_adapters
from meshwright.runtime.checkpoint.whole_parameters import whole_parameters
from meshwright.runtime.reference.decoder import reference_logits
from meshwright.runtime.weights.adapter_values import InitialAdapters
from meshwright.runtime.weights.load import load
from meshwright.runtime.weights.peft_files import load_adapters
from meshwright.runtime.weights.random_tensors import random_tensors
from meshwright.runtime.weights.save import save
from meshwright.verbs.convert import ConvertRequest
from meshwright.workload.adapter import Adapter

ADAPTER = {"rank": 4, "alpha": 8.0}
SHARDED = {"ranks": 2, "layout": {"dp_shard": 2}, "sharding": "zero3"}
TEXTS = [{"text": f"line {number} of a small corpus of texts"} for number in range(40)]


def adapter_run(folder, family="llama", adapter=None, **keys):
    """A plan that trains adapters."""
    work = {"seq_len": 24, "global_batch": 8, "task": "lora", "adapter": adapter or ADAPTER}
    return small_run(folder, family=family, workload=work, **keys)


def model_of(family="llama"):
    return with_adapters(tiny(family), Adapter(**ADAPTER), halves=True)


def base_weights(folder):
    """A folder of weights in fp64."""
    save(folder, tiny("llama"), random_tensors(tiny("llama"), 7, torch.float64, 0.1))
    return folder


def test_a_run_trains_on_texts_and_goes_on_to_the_bit(tmp_path):
    run = adapter_run(tmp_path, **SHARDED)
    config = json.dumps(tiny_config("llama", vocab_size=300))
    (tmp_path / "config.json").write_text(config, encoding="utf-8")
    texts = tmp_path / "texts.jsonl"
    texts.write_text("\n".join(map(json.dumps, TEXTS)), encoding="utf-8")
    wishes = {"data": (str(texts),), "tokenizer": "bytes", "cache": tmp_path / "cache", "lr": 1e-2}
    whole = run.train("whole", 4, "bf16", checkpoint_every=2, **wishes)
    assert whole.outcome.losses[-1] < whole.outcome.losses[0]
    middle = tmp_path / "whole" / "checkpoints" / "step-00000002"
    rest = run.train("rest", 4, "bf16", resume=str(middle), **wishes)
    assert rest.outcome.losses == whole.outcome.losses[2:]
    for part in sorted(path.name for path in whole.outcome.checkpoint.glob("rank-*")):
        assert (rest.outcome.checkpoint / part).read_bytes() == (whole.outcome.checkpoint / part).read_bytes()


def test_training_begins_with_the_base_and_saves_adapters_only(tmp_path):
    weights = base_weights(tmp_path / "weights")
    run = adapter_run(tmp_path)
    done = run.train("run", 3, initial=str(weights), lr=1e-2)
    plain = small_run(tmp_path, "plain").train("plain", 1, initial=str(weights))
    assert done.outcome.losses[0] == plain.outcome.losses[0]
    assert done.outcome.losses[2] != plain.outcome.losses[0]
    stored = whole_parameters(done.outcome.checkpoint)
    assert stored.keys() == adapter_shapes(model_of()).keys()


def test_initial_adapters_are_those_of_peft():
    drawn, shapes = InitialAdapters(model_of(), 0), adapter_shapes(model_of())
    for name, shape in shapes.items():
        if name.endswith("lora_A.weight"):
            assert 0.8 < drawn[name].abs().max() * shape[-1] ** 0.5 <= 1
        else:
            assert not drawn[name].any()


def test_exported_adapters_are_read_again_and_merged_weights_compute_the_same(tmp_path):
    weights, model = base_weights(tmp_path / "weights"), model_of()
    run = adapter_run(tmp_path, **SHARDED)
    done = run.train("run", 2, initial=str(weights), export=str(tmp_path / "adapter"), lr=1e-2)
    stored = whole_parameters(done.outcome.checkpoint)
    adapters = load_adapters(tmp_path / "adapter", model)
    assert all(torch.equal(adapters[name], tensor.to(torch.float32)) for name, tensor in stored.items())
    names = load_file(tmp_path / "adapter" / "adapter_model.safetensors").keys()
    assert "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight" in names

    answer = api.convert(
        done.outcome.checkpoint, ConvertRequest(merge=True, output=tmp_path / "merged")
    ).to_json()
    assert answer["merged"] * 2 == len(stored)
    base, tokens = load(weights, tiny("llama")), torch.arange(20).view(2, 10)
    expected = reference_logits(model, base | stored, tokens)
    merged = load(tmp_path / "merged", tiny("llama"))
    assert merged.keys() == base_shapes(model).keys()
    found = reference_logits(tiny("llama"), merged, tokens)
    assert (found - expected).abs().max() < 1e-6 * expected.abs().max()  # products are added in fp32
    assert (tmp_path / "merged" / "config.json").is_file()

    again = run.train("again", 1, initial=str(tmp_path / "adapter"))
    assert again.outcome.losses[0] != done.outcome.losses[0]


@pytest.mark.parametrize(("wishes", "says"), [({}, "--merge"), ({"merge": True}, "--output")])
def test_a_conversion_says_what_is_missing(tmp_path, wishes, says):
    with pytest.raises(InputError, match=says):
        api.convert(tmp_path, ConvertRequest(**wishes))


def test_what_cannot_be_exported_or_merged_is_named(tmp_path):
    run = adapter_run(tmp_path / "gpt2", "gpt2")
    with pytest.raises((UnsupportedError, InputError), match="c_attn, which peft adapts as a whole"):
        run.train("run", 1, export=str(tmp_path / "adapter"))
    plain = small_run(tmp_path / "plain").train("run", 1)
    with pytest.raises(InputError, match="holds no adapters"):
        api.convert(plain.outcome.checkpoint, ConvertRequest(merge=True, output=tmp_path / "merged"))


def test_a_run_does_not_go_on_with_another_base(tmp_path):
    weights = base_weights(tmp_path / "weights")
    run = adapter_run(tmp_path)
    run.train("run", 1, initial=str(weights))
    (weights / "model.safetensors").unlink()
    save(weights, tiny("llama"), random_tensors(tiny("llama"), 7, torch.float32, 0.1))
    with pytest.raises(InputError, match="other weights than those that the adapters were trained on"):
        run.train("run", 2, initial=str(weights))
