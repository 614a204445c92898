"""Runs of HD-PiSSA: what they begin with, save, go on from, and merge."""

import pytest

pytest.importorskip("torch")

import torch
from test_adapter_training import SHARDED, adapter_run, base_weights
from tiny_models import tiny

from meshwright import api
from meshwright.errors import InputError, UnsupportedError
from meshwright.model.named_tensors import adapted_matrices
from meshwright.model.transforms.lora_adapters import with_adapters, with_stacked_pairs
from meshwright.runtime.checkpoint.whole_parameters import whole_parameters
from meshwright.runtime.weights.load import load
from meshwright.runtime.weights.principal_pairs import PrincipalPairs, principal_pair
from meshwright.verbs.convert import ConvertRequest
from meshwright.workload.adapter import Adapter

OWN = {"form": "hd-pissa", "rank": 4}


def stored_in(checkpoint):
    return whole_parameters(checkpoint)


def test_a_run_saves_pairs_and_the_changed_base_and_goes_on_to_the_bit(tmp_path):
    run = adapter_run(tmp_path, adapter=OWN, **SHARDED)
    wishes = {"initial": str(base_weights(tmp_path / "weights")), "lr": 1e-2}
    whole = run.train("whole", 4, "bf16", checkpoint_every=2, **wishes)
    assert whole.outcome.losses[-1] < whole.outcome.losses[0]
    middle = tmp_path / "whole" / "checkpoints" / "step-00000002"
    rest = run.train("rest", 4, "bf16", resume=str(middle), lr=1e-2)
    assert rest.outcome.losses == whole.outcome.losses[2:]
    for part in sorted(path.name for path in whole.outcome.checkpoint.glob("rank-*")):
        assert (rest.outcome.checkpoint / part).read_bytes() == (whole.outcome.checkpoint / part).read_bytes()


def test_the_stored_base_has_changed_by_the_pairs_of_all_ranks_and_is_the_merged_one(tmp_path):
    weights = base_weights(tmp_path / "weights")
    run = adapter_run(tmp_path, adapter=OWN, **SHARDED)
    done = run.train("run", 3, "fp32", initial=str(weights), lr=1e-2)
    stored, base = stored_in(done.outcome.checkpoint), load(weights, tiny("llama"))
    model = with_stacked_pairs(with_adapters(tiny("llama"), Adapter(**OWN), halves=True), 2)
    begins = PrincipalPairs(base, model)
    answer = api.convert(
        done.outcome.checkpoint, ConvertRequest(merge=True, output=tmp_path / "merged")
    ).to_json()
    merged, changed = load(tmp_path / "merged", tiny("llama")), set()
    for unit, op, matrix in adapted_matrices(model):
        name, (down, up) = f"{unit}.{matrix.name}.weight", (f"{unit}.{n}" for n in (matrix.down, matrix.up))
        assert stored[down].shape[0] == op.rank == 8
        change = stored[up].double() @ stored[down].double() - begins[up] @ begins[down]
        assert (stored[name].double() - base[name] - change).abs().max() < 1e-6
        assert torch.equal(merged[name], stored[name].to(merged[name]))
        changed.add(name)
    assert answer["merged"] == len(changed)
    assert stored.keys() == changed | begins.keys()
    assert all(torch.equal(merged[name], base[name].to(merged[name])) for name in base.keys() - changed)


def test_a_pair_is_the_leading_part_of_its_matrix():
    matrix = torch.randn(12, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    down, up = principal_pair(matrix, 3)
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    assert torch.allclose(up @ down, left[:, :3] * values[:3] @ right[:3])
    assert torch.allclose(down @ down.T, values[:3].diag())
    assert torch.allclose(up.T @ up, values[:3].diag())


def test_files_of_adapters_are_refused_both_ways(tmp_path):
    weights = base_weights(tmp_path / "weights")
    adapter = tmp_path / "adapter"
    adapter_run(tmp_path).train("lora", 1, initial=str(weights), export=str(adapter))
    run = adapter_run(tmp_path, adapter=OWN)
    with pytest.raises((InputError, UnsupportedError)) as caught:
        run.train("run", 1, initial=str(adapter), export=str(tmp_path / "other"))
    assert "convert CHECKPOINT --merge" in str(caught.value)
    assert "begins with those of the base itself" in str(caught.value)
