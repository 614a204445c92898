"""megatron-core reads what we write: its model computes our logits, its distributed optimizer has our moments.

Needs ``bash scripts/parsers.sh megatron``.
"""

import json
import subprocess
from pathlib import Path

import pytest
import torch
from megatron_jobs import config_of, reader_job, saved_run
from raw_states import whole_states
from source_tree import ROOT
from tiny_models import tiny

from meshwright import api
from meshwright.runtime.checkpoint.formats.megatron_layout import LAYERS
from meshwright.runtime.checkpoint.manifest import read_manifest
from meshwright.runtime.reference.decoder import reference_logits
from meshwright.verbs.convert import ConvertRequest

PYTHON = ROOT / "parsers" / "megatron" / "bin" / "python"
PROGRAM = Path(__file__).with_name("megatron_reader_program.py")
OUTER = {
    "embed.embed_tokens.weight": "embedding.word_embeddings.weight",
    "head.norm.weight": "decoder.final_layernorm.weight",
}
STATES = {"exp_avg": "first_moment", "exp_avg_sq": "second_moment", "param": "parameter"}


@pytest.mark.slow
@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2", "mixtral", "qwen3_moe"])
def test_megatron_computes_the_same_from_a_converted_checkpoint(tmp_path, family):
    if not PYTHON.exists():
        pytest.skip(f"{PYTHON} is not there: bash scripts/parsers.sh megatron")
    source, model = saved_run(tmp_path / "source", family), tiny(family)
    folder = config_of(tmp_path / "model", family)
    api.convert(source, ConvertRequest(to="megatron", output=tmp_path / "out", model=folder))
    job, found = reader_job(family), tmp_path / "found.pt"
    command = [PYTHON, PROGRAM, tmp_path / "out" / "iter_0000002", json.dumps(job), found]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    loaded = torch.load(found, weights_only=True)
    assert (loaded["iteration"], loaded["layers"]) == (2, model.architecture.layers)

    states = whole_states(source, read_manifest(source), ("parameter", "first_moment", "second_moment"))
    weights = {name: of for (state, name), of in states.items() if state == "parameter"}
    expected = reference_logits(model, weights, torch.tensor(job["tokens"]))
    logits = loaded["logits"][..., : model.architecture.vocab]
    assert (logits - expected).abs().max() < 1e-6 * expected.abs().max()

    for key, state in STATES.items():
        for ours, theirs in OUTER.items():
            read, held = loaded["optimizer"][theirs][key], states[state, ours]
            assert torch.equal(read[: len(held)], held)
            assert not read[len(held) :].any()
        for layer in range(model.architecture.layers):
            projection = loaded["optimizer"][f"{LAYERS}.{layer}.self_attention.linear_proj.weight"]
            assert torch.equal(projection[key], states[state, f"layers.{layer}.self_attn.o_proj.weight"])
    assert {state["step"] for state in loaded["optimizer"].values()} == {2}
    plain = loaded["plain"]
    assert torch.equal(plain["decoder.final_layernorm.weight"], weights["head.norm.weight"])
