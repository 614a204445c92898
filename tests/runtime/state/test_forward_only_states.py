"""Steps without backward passes: equal bits however the losses are shared, and nothing but parameters is held."""

import pytest
import torch
from checkpoint_runs import resumed, run_on
from local_plans import run, small
from tiny_models import tiny

from meshwright.runtime.checkpoint import latest_checkpoint
from meshwright.runtime.executor.block_passes import BlockRun, live_bytes

LLAMA = tiny("llama", num_hidden_layers=2)
SPLIT = {"name": "zo-sgd", "perturbations": "split"}
ZERO3 = {"sharding": "zero3", "gather": "per-layer"}


def bits(tensors):
    return {
        name: tensor.cpu().contiguous().view(torch.uint8).numpy().tobytes()
        for name, tensor in tensors.items()
    }


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("replicas", "more"),
    [(1, {}), (2, ZERO3 | {"dp_shard": 2}), pytest.param(3, {}, marks=pytest.mark.slow)],
    ids=str,
)
def test_split_over_2n_replicas_has_the_bits_of_both_over_n(replicas, more):
    batch = 6 * more.get("dp_shard", 1)
    cases = [
        small(LLAMA, optimizer="zo-sgd", dp_replicate=replicas, global_batch=batch, **more),
        small(LLAMA, optimizer=SPLIT, dp_replicate=2 * replicas, global_batch=batch, **more),
    ]
    both, split = (run_of(case) for case in cases)
    assert both[0] == split[0]
    assert bits(both[1]) == bits(split[1])


def run_of(case):
    """(losses and projected gradients in hex, parameters) after three steps in bf16."""
    results, _, parameters, *_ = run(case, "bf16", steps=3, keeps_gradients=False)
    return [(r.loss.hex(), r.norm.hex()) for r in results], parameters


def same_losses(interpreter):
    """Put fixed losses in the place of sums, whose orders differ from cut to cut."""
    states = interpreter.states
    reduce = states.reduce_norm

    def fixed(action):
        reduce(action)
        states.sums = torch.tensor([2.5, 2.25], dtype=torch.float64)

    states.reduce_norm = fixed


def test_parameters_have_the_same_bits_under_every_cut():
    whole, cut = (
        run(case, "bf16", steps=2, probe=same_losses, keeps_gradients=False)[2]
        for case in (
            small(LLAMA, optimizer="zo-sgd"),
            small(LLAMA, optimizer="zo-sgd", pp=2, tp=2, dp_shard=2, **ZERO3),
        )
    )
    assert bits(whole) == bits(cut)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "case",
    [
        small(tiny("gemma2", num_hidden_layers=2), optimizer="zo-sgd", pp=2, dp_shard=2, **ZERO3),
        small(LLAMA, optimizer=SPLIT, dp_replicate=2),
    ],
    ids=["stages of a tied table, in shards", "split"],
)
def test_a_resumed_run_has_the_same_bits(case, tmp_path):
    whole = run_on(case, tmp_path, "bf16")
    again = resumed(case, latest_checkpoint(tmp_path), "bf16")
    for (results, held), (later, held_then, _) in zip(whole, again, strict=True):
        assert results[3:] == later
        assert held == held_then
        assert all(name.startswith("parameter/") for name in held[1])


def test_passes_keep_nothing():
    kept = []

    def watch(interpreter):
        forward = BlockRun.forward

        def measured(self, x):
            y = forward(self, x)
            kept.append(live_bytes(self.visits.values()))
            return y

        BlockRun.forward = measured
        return kept

    *_, probed = run(small(LLAMA, optimizer="zo-sgd"), "fp32", steps=1, keeps_gradients=False, probe=watch)
    assert probed[0]
    assert not any(probed[0])
