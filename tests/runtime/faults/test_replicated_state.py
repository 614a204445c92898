"""Fingerprints of copies on forked ranks under several layouts."""

import pytest
import torch
import torch.distributed as dist
from local_plans import batch, micro_batches, small
from tiny_models import tiny

from meshwright.runtime.executor.rank import Job, rank_of
from meshwright.runtime.faults.replicated_state import Piece, replicated_state, words
from meshwright.runtime.launch.forked_ranks import run_locally
from meshwright.runtime.state.step_options import StepOptions
from meshwright.runtime.weights.random_tensors import random_tensors

LLAMA, TIED = tiny("llama", num_hidden_layers=2), tiny("gemma2", num_hidden_layers=2)
EXPERTS = tiny("deepseek_v3", num_hidden_layers=2, bias_update_speed=0.01)
LAYOUTS = {
    "zero1, tp": small(LLAMA, sharding="zero1", dp_replicate=2, tp=2),
    "zero3": small(LLAMA, sharding="zero3", gather="per-layer", dp_replicate=2, dp_shard=2),
    "tied table": small(TIED, {"schedule": {"name": "1f1b"}}, pp=2, dp_replicate=2),
    "experts": small(EXPERTS, sharding="zero1", dp_replicate=2, tp=2, ep=2),
    "host": small(LLAMA, sharding="zero1", dp_replicate=2, tp=2, offload={"optimizer": 0.5}),
}


def fingerprints(case, flipped):
    """Fingerprints of each rank behind two steps, by step; rank ``flipped`` flips a bit between them."""
    tensors = random_tensors(case.model, 0)
    job = Job(case.program, case.model, "fp32", StepOptions(lr=1e-2), 60.0, accelerated=False)

    def work(place, store, report):
        with rank_of(job, place, store, tensors) as rank:
            state = replicated_state(rank, range(place.ranks), None)
            for step in range(2):
                if step and place.rank == flipped:
                    state.flip_bit()
                tokens, labels = batch(case.model, case.global_batch, step)
                rank.interpreter.step(micro_batches(case.program, place.rank, tokens, labels))
                state.record(step)
            everyone = [None] * place.ranks
            keys = sorted(state.last())
            dist.all_gather_object(everyone, state.history(keys))
            return everyone

    return run_locally(work, case.program.parts.ranks, 60, lambda what, part: None)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("name", LAYOUTS)
def test_copies_have_equal_fingerprints_until_a_bit_differs(name):
    everyone = fingerprints(LAYOUTS[name], flipped=1)
    keys = {key for histories in everyone for key in histories}
    assert keys
    differs = set()
    for key in keys:
        ranks, _ = key
        for step in range(2):
            if len({everyone[rank][key][step] for rank in ranks}) > 1:
                differs.add((key, step))
    assert {step for _, step in differs} == {1}
    assert all(1 in ranks for (ranks, _), _ in differs)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_fingerprint_depends_on_every_bit_and_not_on_the_order(dtype):
    values = torch.randn(101, generator=torch.manual_seed(0), dtype=torch.float64).to(dtype)
    size = values.element_size()

    def value(memory):
        return int(Piece(((0, 1), size), ("a",), buffer=memory).sums()[0]) % 2 ** (8 * size)

    usual, split = value(values), value(values[:40]) + value(values[40:])
    assert value(values.flip(0)) == split % 2 ** (8 * size) == usual
    for bit in range(8 * size - 1):
        changed = values.clone()
        words(changed)[17:18].bitwise_xor_(1 << bit)
        assert value(changed) != usual
