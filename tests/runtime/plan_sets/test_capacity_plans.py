"""Experts of a limited capacity drop the same tokens wherever these are."""

import pytest
import torch
from capacity_plans import BOUNDED, CAPACITIES, CUT, OTHERS, alone, composed
from covering_plans import told
from single_device_check import equal_to_one_device

from meshwright.runtime.kernels.moe.expert_capacity import admitted_choices
from meshwright.runtime.reference.decoder import reference_choices
from meshwright.runtime.reference.expert_capacity import Bounded


def named(plan):
    return f"{plan.model} {told(plan)}"


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("plan", alone(), ids=named)
def test_experts_with_a_capacity_are_computed_as_on_one_device(plan):
    equal_to_one_device(plan)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("plan", [*OTHERS, *composed()], ids=named)
def test_they_are_with_every_other_part(plan):
    equal_to_one_device(plan)


@pytest.mark.parametrize("capacity", CAPACITIES, ids=str)
def test_some_tokens_are_dropped_and_no_expert_has_too_many(capacity):
    trial = BOUNDED.trial()
    batch, sending = trial.batches()[0], trial.sending
    of = Bounded(capacity, sending.scopes if capacity.scope != "sequence" else sequences(batch))
    choices = reference_choices(trial.model, trial.tensors(), batch.tokens, sending=of)
    size = int((of.scopes == 0).sum())
    moe = trial.model.architecture.moe
    places = -(-size * moe.experts_per_token * 7 // (moe.experts * 10))
    for choice in choices:
        assert not choice.sent.all()
        assert (choice.weights[~choice.sent] == 0).all()
        for scope in of.scopes.unique():
            inside = (of.scopes == scope).expand(choice.experts.shape[:2])
            chosen, kept = choice.experts[inside], choice.sent[inside]
            loads = chosen.flatten().bincount(minlength=moe.experts)
            found = chosen[kept].bincount(minlength=moe.experts)
            assert found.tolist() == loads.clamp(max=places).tolist()


def sequences(batch):
    return torch.arange(len(batch.tokens))[:, None].expand(batch.tokens.shape)


def test_scopes_of_a_trial_are_the_ranks_parts():
    scopes = CUT.trial().sending.scopes
    _, sizes = scopes.unique(return_counts=True)
    assert sizes.tolist() == [12] * 8, "24 tokens · 2 sequences in 4 parts, 2 micro-batches"


def test_the_heaviest_come_first_and_of_equal_ones_the_first():
    queues = torch.tensor([[0, 1], [0, 1], [1, 0], [0, 2]])
    worth = torch.tensor([[0.5, 0.1], [0.7, 0.1], [0.1, 0.5], [0.5, 0.0]])
    kept = admitted_choices(queues, worth, 2)
    assert kept.tolist() == [[True, True], [True, True], [False, False], [False, True]]
