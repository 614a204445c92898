"""Muon on ranks: torch's bits on one, and the same bits wherever whole matrices are owned or gathered."""

import io
from dataclasses import replace

import pytest
import torch
from covering_plans import Proven

from meshwright.runtime.executor.rank import Job, rank_of
from meshwright.runtime.launch.forked_ranks import run_locally
from meshwright.runtime.state.shard_pieces import pieces_of
from meshwright.runtime.state.step_options import StepOptions
from meshwright.runtime.verify.reference_rules import hidden_matrices
from meshwright.runtime.verify.run_case import gathered
from meshwright.runtime.verify.tensor_errors import joined
from meshwright.runtime.verify.verify_case import micro_batches

STEPS = StepOptions(lr=1e-2, clip=None)


def trained(plan, precision="bf16"):
    """Whole gradients of every step and parameters before the first and after each, in a run in bf16."""
    trial = plan.trial()

    def work(place, store, tell):
        job = Job(trial.program, trial.model, precision, STEPS, accelerated=False)
        with rank_of(job, place, store, trial.tensors()) as rank:
            units, gradients, parameters = rank.plan.all_units, [], []

            def pieces(buffer):
                return [piece for unit in units for piece in pieces_of(unit, buffer(unit).double())]

            rank.interpreter.states.before_step = lambda: gradients.append(pieces(lambda u: u.reduced))
            parameters.append(pieces(lambda u: u.owned))
            for batch in trial.batches():
                rank.interpreter.step(micro_batches(trial, batch, place.rank))
                parameters.append(pieces(lambda u: u.owned))
            everyone, out = gathered((gradients, parameters), place), io.BytesIO()
            torch.save([whole(everyone, kind) for kind in (0, 1)] if place.rank == 0 else [], out)
            return out.getvalue()

    found = run_locally(work, plan.ranks, 120, lambda what, part: None)
    return torch.load(io.BytesIO(found)), trial


def whole(everyone, kind):
    """Whole tensors of each step, from the pieces of all ranks."""
    steps = range(len(everyone[0][kind]))
    return [joined(piece for of_rank in everyone for piece in of_rank[kind][step])[0] for step in steps]


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(("scale", "theirs"), [("shape", "original"), ("match-rms-adamw", "match_rms_adamw")])
@pytest.mark.parametrize("nesterov", [True, False])
def test_one_rank_has_the_bits_of_torchs_muon(scale, theirs, nesterov):
    options = {"name": "muon", "scale": scale, "nesterov": nesterov, "steps": 4, "momentum": 0.9}
    (gradients, parameters), trial = trained(Proven("llama", layers=2, optimizer=tuple(options.items())))
    names = hidden_matrices(trial.program)
    assert len(names) == 2 * 7
    tensors = {name: parameters[0][name].float().requires_grad_() for name in names}
    muon = torch.optim.Muon(
        tensors.values(), lr=STEPS.lr, momentum=0.9, nesterov=nesterov, ns_steps=4, adjust_lr_fn=theirs
    )
    for step, found in enumerate(gradients, start=1):
        for name, tensor in tensors.items():
            tensor.grad = found[name].float()
        muon.step()
        for name, tensor in tensors.items():
            assert torch.equal(tensor.detach(), parameters[step][name].float()), (step, name)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "plan",
    [
        Proven("mixtral", dp_shard=2, ep=2, sharding="zero1"),
        Proven("llama", dp_shard=2, sharding="zero2"),
        Proven("llama", dp_shard=2, sharding="zero3", gather="per-layer", micro_batches=1),
    ],
    ids=["zero1, experts", "zero2", "zero3"],
)
def test_whole_matrices_have_the_bits_of_states_that_are_not_cut(plan):
    plan = replace(plan, optimizer="muon", layers=2)
    whole = replace(plan, dp_shard=1, dp_replicate=2, sharding="none", gather=None)
    (_, cut), _ = trained(plan)
    (_, uncut), _ = trained(whole)
    for found, expected in zip(cut, uncut, strict=True):
        assert all(torch.equal(found[name], expected[name]) for name in expected)
