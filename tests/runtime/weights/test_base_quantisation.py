"""int8 and NF4: nearest codes, bytes as the plan counts them, and equal values under every cut."""

from dataclasses import replace
from math import prod

import pytest
import torch
from adapter_plans import blocks

from meshwright.program.rank_units.unit_layout import Cut
from meshwright.runtime.executor.rank import Job, rank_of
from meshwright.runtime.launch.forked_ranks import run_locally
from meshwright.runtime.verify.verify_case import micro_batches
from meshwright.runtime.weights.base_quantisation import NF4_CODES, QUANTISERS, first_row, rounded
from meshwright.workload.base_types import BASE_TYPES


def matrix(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(5)) * 0.02


def test_nf4_takes_the_nearest_code_of_each_block():
    whole = matrix(3, 128)
    found = rounded(whole, "nf4").unflatten(-1, (-1, 64))
    scales = whole.unflatten(-1, (-1, 64)).abs().amax(-1, keepdim=True)
    distances = (whole.unflatten(-1, (-1, 64)) / scales)[..., None] - torch.tensor(NF4_CODES)
    nearest = torch.tensor(NF4_CODES)[distances.abs().argmin(-1)] * scales
    assert (found - nearest).abs().max() <= scales.max() / 255  # what a scale in 8 bits loses


def test_int8_rounds_each_row_by_its_largest_magnitude():
    whole = matrix(5, 40)
    step = whole.abs().amax(-1, keepdim=True) / 127
    assert (rounded(whole, "int8") - whole).abs().div(step).max() <= 0.5 + 1e-4


@pytest.mark.parametrize("storage", QUANTISERS)
@pytest.mark.parametrize("shape", [(512, 128), (4, 256, 64)], ids=str)
def test_pieces_have_the_bytes_that_a_plan_counts(storage, shape):
    pieces = QUANTISERS[storage].pieces(matrix(*shape))
    counted = BASE_TYPES[storage].bytes(prod(shape), prod(shape[:-1]))
    assert sum(piece.nbytes for piece in pieces.values()) == counted


@pytest.mark.parametrize("storage", QUANTISERS)
@pytest.mark.parametrize(
    "cuts", [(Cut(1, 100, 400),), (Cut(2, 64, 128),), (Cut(0, 0, 2, (3, 1)), Cut(1, 0, 256))], ids=str
)
def test_a_part_opens_to_the_part_of_the_whole(storage, cuts):
    whole, quantiser = matrix(4, 512, 128), QUANTISERS[storage]
    part = quantiser.opened(quantiser.cut(quantiser.pieces(whole), cuts), first_row(cuts, 3))
    expected = rounded(whole, storage)
    for dim, start, stop, rows in cuts:
        expected = expected[list(rows)] if rows else expected.narrow(dim, start, stop - start)
    assert torch.equal(part, expected)


def test_zeros_stay_zeros():
    for storage in QUANTISERS:
        assert not rounded(torch.zeros(4, 64), storage).any()


def test_an_nf4_base_has_the_loss_of_a_16_bit_base_with_its_weights():
    quantised = blocks(dp_replicate=2)
    plain = replace(quantised, adapter=quantised.adapter[:-1])
    tensors = plain.trial().tensors()
    named = {name: p.storage for name, p in _parameters(quantised).items() if p.storage == "nf4"}
    half = {name: tensor.to(torch.bfloat16) for name, tensor in tensors.items()}
    opened = half | {name: rounded(half[name], "nf4") for name in named}
    assert _loss(quantised, half) == _loss(plain, opened)
    assert _loss(plain, half) != _loss(plain, opened)


def _parameters(plan):
    _, model = plan.lowered()
    return {
        f"layers.{i}.{p.name}": p for i in range(3) for op in model.blocks[1].operators for p in op.parameters
    }


def _loss(plan, tensors):
    """The loss of a step in bf16, as the first rank knows it."""
    trial = plan.trial()

    def work(place, store, tell):
        job = Job(trial.program, trial.model, accelerated=False)
        with rank_of(job, place, store, tensors) as rank:
            return rank.interpreter.step(micro_batches(trial, trial.batches()[0], place.rank)).loss

    return run_locally(work, plan.ranks, 60, lambda what, part: None)
