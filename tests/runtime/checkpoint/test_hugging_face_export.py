"""A run's weights as a checkpoint for other software: whole, in the dtype of the computation."""

import io
import json

import pytest

pytest.importorskip("torch")

import torch
from checkpoint_runs import on_ranks
from local_plans import small
from tiny_models import tiny

from meshwright.errors import InputError
from meshwright.runtime.checkpoint import export_weights
from meshwright.runtime.state.shard_pieces import pieces_of, whole_tensors
from meshwright.runtime.weights.load import load

TIED = small(tiny("gemma2", num_hidden_layers=2), pp=2, tp=2, sequence_parallel=False)
SPREAD = small(
    tiny("gemma2", num_hidden_layers=2),
    {"schedule": {"name": "1f1b", "vocabulary": "vocab-1"}},
    pp=2,
    tp=2,
    sequence_parallel=False,
)
EXPERTS = small(
    tiny("deepseek_v3", num_hidden_layers=2, bias_update_speed=0.01),
    pp=2,
    dp_replicate=2,
    ep=2,
)
ORDERED = small(
    tiny("mixtral", num_hidden_layers=2), dp_replicate=2, ep=2, expert_order=((3, 0, 5, 1, 2, 4),)
)
SHARDED = small(tiny("llama", num_hidden_layers=1), sharding="zero3", gather="per-layer", dp_shard=2)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("case", "precision"),
    [(TIED, "bf16"), (SPREAD, "bf16"), (SHARDED, "fp32"), (EXPERTS, "fp32"), (ORDERED, "bf16")],
    ids=["pp tp tied", "pp tp tied and spread", "zero3", "pp ep", "experts in an order"],
)
def test_exported_weights_are_the_runs_parameters(case, precision, tmp_path):
    def work(rank, steps):
        steps([1])
        export_weights(tmp_path / "out", rank, case.model, {"model_type": "tiny"})

    on_ranks(case, work, precision)
    dtype = {"bf16": torch.bfloat16, "fp32": torch.float32}[precision]
    expected = parameters_after_a_step(case, precision)
    found = load(tmp_path / "out", case.model)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name].to(dtype)) for name in expected)
    assert json.loads((tmp_path / "out" / "config.json").read_text()) == {"model_type": "tiny"}


def parameters_after_a_step(case, precision):
    """The same step, put together from all ranks."""

    def work(rank, steps):
        steps([1])
        pieces = [p for unit in rank.plan.all_units for p in pieces_of(unit, unit.owned)]
        return to_bytes((pieces, dict(rank.plan.buffers)))

    everyones = [from_bytes(data) for data in on_ranks(case, work, precision)]
    buffers = {name: buffer for _, of_rank in everyones for name, buffer in of_rank.items()}
    return whole_tensors(piece for pieces, _ in everyones for piece in pieces) | buffers


def to_bytes(value):
    out = io.BytesIO()
    torch.save(value, out)
    return out.getvalue()


def from_bytes(data):
    return torch.load(io.BytesIO(data), weights_only=False)


def test_what_cannot_be_exported_is_told_to_all_ranks(tmp_path):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "model.safetensors").touch()

    def work(rank, steps):
        with pytest.raises(InputError) as taken:
            export_weights(tmp_path / "taken", rank, SHARDED.model)
        if rank.place.rank == 1:
            rank.plan.unit_of["layers.0.mlp.down_proj.weight"].owned.fill_(float("nan"))
        with pytest.raises(InputError) as diverged:
            export_weights(tmp_path / "out", rank, SHARDED.model)
        return str(taken.value), str(diverged.value)

    for taken, diverged in on_ranks(SHARDED, work):
        assert "there is a checkpoint already" in taken
        assert "layers.0.mlp.down_proj.weight = 'nan': holds NaN" in diverged
    assert not (tmp_path / "out").exists()
