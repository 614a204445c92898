"""Experts that get centroids of similar tokens compute what one device computes with the same buckets."""

from dataclasses import replace

import pytest
import torch
from bucket_plans import BUCKETED, FEW, FINE, PLANS, Unlike, plain
from covering_plans import told
from single_device_check import equal_to_one_device

from meshwright.runtime.reference.decoder import reference_choices
from meshwright.runtime.verify.case_result import DOUBTFUL
from meshwright.runtime.verify.reference_steps import reference_steps
from meshwright.runtime.verify.run_case import run_case


def named(plan):
    return f"{plan.model} {told(plan)}"


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("plan", PLANS, ids=named)
def test_plans_with_buckets_are_computed_as_on_one_device(plan):
    equal_to_one_device(plan)


def test_bytes_of_centroids_are_those_of_the_reference():
    (found,) = run_case(FEW.trial(), lambda what, part: None).exchanges
    assert found.logged == found.predicted
    ((kind, axes, size),) = found.logged
    whole = 4 * 3 * 3 * 24 * 2 * 2 * 2 * 48 * 2
    assert (kind, axes) == ("all-to-all", ("ep",))
    assert 0 < size < whole / 2, (
        "4 exchanges · 3 layers · 3 steps · 24 tokens · 2 choices · 2 · 2 · 48 · 2 bytes"
    )


def test_one_token_a_bucket_is_as_without_buckets_and_shows_nothing_of_them():
    trial = Unlike(*replace(BUCKETED, synchronise=(FINE,)).lowered())
    outcome = run_case(trial, lambda what, part: None)
    assert outcome.caught_by == ("bytes",)
    assert outcome.traffic == tuple(
        f"step {step}: step: no bucket of similar tokens holds several" for step in (1, 2, 3)
    )
    assert outcome.worst.value < DOUBTFUL
    bucketed, exact = reference_steps(trial), reference_steps(plain(BUCKETED))
    for name, parameter in exact.parameters.items():
        assert torch.allclose(bucketed.parameters[name], parameter, rtol=1e-12, atol=1e-13), name


@pytest.mark.parametrize("plan", [BUCKETED, FEW], ids=["usual", "coarse"])
def test_some_tokens_share_a_bucket_in_every_layer(plan):
    trial = plan.trial()
    for batch in trial.batches():
        choices = reference_choices(trial.model, trial.tensors(), batch.tokens, sending=trial.sending)
        for choice in choices:
            assert 0 < choice.sent.sum() < choice.sent.numel()
