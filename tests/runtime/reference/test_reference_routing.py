"""The routing of the plain decoder: what is chosen, what it weighs, what keeps it in balance."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from local_plans import SEQ_LEN, small
from tiny_models import tiny
from transformers_oracle import DEVIATION, SEED, tokens_and_labels

from meshwright.model.named_tensors import named_buffers, named_parameters
from meshwright.model.numerics import ClampedSwiglu
from meshwright.model.router import Groups, LoadBalance, Routing
from meshwright.runtime.reference.decoder import reference_corrections, reference_loss
from meshwright.runtime.reference.elementwise import clamped_swiglu
from meshwright.runtime.reference.routing import Choice, chosen, imbalance, moved
from meshwright.runtime.verify.reference_steps import reference_steps
from meshwright.runtime.verify.verify_case import STEPS, VerifyCase
from meshwright.runtime.weights.random_tensors import random_tensors


def numbers(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_weights_are_scores_of_the_chosen():
    logits_TE = torch.tensor([[0.0, 2.0, 1.0]], dtype=torch.float64)
    found = chosen(Routing(scores="softmax", scaling=3.0), 2, logits_TE, None)
    assert found.experts.tolist() == [[1, 2]]
    torch.testing.assert_close(found.weights, 3 * logits_TE.softmax(1)[:, [1, 2]])
    torch.testing.assert_close(found.probabilities, logits_TE.softmax(1))


def test_softmax_over_the_chosen_is_softmax_over_all_normalised():
    logits_TE = numbers(50, 8)
    after = chosen(Routing(scores="softmax-of-chosen"), 3, logits_TE, None)
    before = chosen(Routing(scores="softmax", normalised=True), 3, logits_TE, None)
    assert torch.equal(after.experts, before.experts)
    torch.testing.assert_close(after.weights, before.weights)


def test_a_correction_moves_the_choice_and_not_the_weights():
    logits_TE, correction_E = numbers(50, 8), torch.tensor([5.0] + [0.0] * 7, dtype=torch.float64)
    found = chosen(Routing(scores="sigmoid"), 2, logits_TE, correction_E)
    assert (found.experts[:, 0] == 0).all()
    torch.testing.assert_close(found.weights, torch.sigmoid(logits_TE).gather(1, found.experts))


@pytest.mark.parametrize(("best", "expected"), [(1, {0, 1}), (2, {2, 3})])
def test_a_group_is_worth_its_best_or_its_best_two(best, expected):
    """Groups of (0.9, 0.1) and (0.6, 0.5): the first has the best expert, the second the best two."""
    logits_TE = torch.logit(torch.tensor([[0.9, 0.1, 0.6, 0.5]], dtype=torch.float64))
    routing = Routing(scores="sigmoid", groups=Groups(count=2, chosen=1, best=best))
    assert set(chosen(routing, 2, logits_TE, None).experts[0].tolist()) == expected


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 1000),
    count=st.sampled_from([2, 4, 8]),
    allowed=st.integers(1, 8),
    best=st.integers(1, 2),
    scores=st.sampled_from(["softmax", "sigmoid"]),
)
def test_no_token_chooses_from_more_groups_than_it_may(seed, count, allowed, best, scores):
    groups = Groups(count=count, chosen=min(allowed, count), best=best)
    routing = Routing(scores=scores, groups=groups)
    per_token = min(3, groups.chosen * 16 // count)
    found = chosen(routing, per_token, numbers(20, 16, seed=seed), numbers(16, seed=seed + 1) / 4)
    for experts in found.experts.tolist():
        assert len(set(experts)) == per_token
        assert len({expert // (16 // count) for expert in experts}) <= groups.chosen


def even(sequences, length, experts):
    """Every expert chosen as often as every other, all probabilities equal."""
    turns = torch.arange(sequences * length).view(sequences, length, 1) % experts
    same = torch.full((sequences, length, experts), 1 / experts, dtype=torch.float64)
    return Choice(turns, torch.ones_like(turns, dtype=torch.float64), same)


@pytest.mark.parametrize("scope", ["sequence", "micro-batch"])
def test_the_loss_of_even_loads_is_its_coefficient_and_of_one_expert_the_number_of_experts_times_that(scope):
    balance = LoadBalance(coefficient=0.3, scope=scope)
    assert imbalance(balance, even(4, 8, 4), 2).item() == pytest.approx(0.3)
    first = torch.zeros(4, 8, 1, dtype=torch.long)
    probabilities = torch.nn.functional.one_hot(first[..., 0], 4).double()
    assert imbalance(balance, Choice(first, first.double(), probabilities), 2).item() == pytest.approx(1.2)


def test_scopes_are_averaged():
    choice = chosen(Routing(scores="softmax"), 2, numbers(4, 6, 8), None)
    parts = [
        Choice(*(x[i : i + 1] for x in (choice.experts, choice.weights, choice.probabilities)))
        for i in range(4)
    ]
    by_sequence = LoadBalance(coefficient=1.0, scope="sequence")
    together = LoadBalance(coefficient=1.0, scope="micro-batch")
    mean = sum(imbalance(by_sequence, part, 1) for part in parts) / 4
    assert imbalance(by_sequence, choice, 4).item() == pytest.approx(mean.item(), rel=1e-14)
    assert imbalance(together, choice, 1).item() == pytest.approx(mean.item(), rel=1e-14)
    whole, halves = imbalance(together, choice, 4), imbalance(together, choice, 2)
    assert len({round(x.item(), 9) for x in (mean, whole, halves)}) == 3


def test_the_balance_is_added_to_the_loss_of_every_routed_layer():
    tokens_BL, labels_BL = tokens_and_labels()
    one, none = (tiny("deepseek_v3", aux_loss_alpha=alpha) for alpha in (0.2, 0.0))
    two = tiny("deepseek_v3", aux_loss_alpha=0.4)
    tensors = random_tensors(none, SEED, torch.float64, DEVIATION)
    losses = [reference_loss(model, tensors, tokens_BL, labels_BL, 42) for model in (none, one, two)]
    assert losses[0] < losses[1]
    assert (losses[2] - losses[0]).item() == pytest.approx(2 * (losses[1] - losses[0]).item(), rel=1e-9)


def test_micro_batches_are_sequences_in_a_row():
    tokens_BL, labels_BL = tokens_and_labels()
    model = tiny("mixtral", output_router_logits=True, router_aux_loss_coef=0.5)
    sequence = tiny("mixtral", output_router_logits=True, router_aux_loss_coef=0.5, seq_aux=True)
    tensors = random_tensors(model, SEED, torch.float64, DEVIATION)
    single, whole = (reference_loss(model, tensors, tokens_BL, labels_BL, 42, size) for size in (1, None))
    assert single.item() == reference_loss(sequence, tensors, tokens_BL, labels_BL, 42).item()
    assert single.item() != whole.item()


def test_a_correction_moves_by_the_sign_of_what_is_missing():
    routing = Routing(scores="sigmoid", correction_speed=0.01)
    experts = torch.tensor([[0, 1], [0, 1], [0, 2], [0, 3]])  # loads 4 2 1 1, mean 2
    choice = Choice(experts, experts.double(), numbers(4, 4))
    assert moved(routing, torch.zeros(4), choice).tolist() == pytest.approx([-0.01, 0.0, 0.01, 0.01])


def test_clamped_swiglu_is_that_of_gpt_oss():
    clamped = ClampedSwiglu(alpha=2.0, limit=3.0)
    gate, up = torch.tensor([5.0, -5.0, 1.0]), torch.tensor([9.0, -9.0, 0.5])
    expected = [4 * 3 / (1 + torch.exp(torch.tensor(-6.0))), -2 * -5 / (1 + torch.exp(torch.tensor(10.0)))]
    expected.append(1.5 / (1 + torch.exp(torch.tensor(-2.0))))
    torch.testing.assert_close(clamped_swiglu(clamped, gate, up), torch.stack(expected))


@pytest.mark.parametrize("speed", [0.0, 0.01])
def test_steps_move_corrections_by_loads_and_by_nothing_else(speed):
    case = small(tiny("deepseek_v3", bias_update_speed=speed), global_batch=4)
    trial = VerifyCase(case.program, case.model)
    before, steps = trial.tensors(), reference_steps(trial)
    assert steps.gradients[0].keys() == named_parameters(case.model).keys()
    assert steps.parameters.keys() == before.keys()
    for name in named_buffers(case.model):
        ways = (steps.parameters[name] - before[name]) / (speed or 1.0)
        torch.testing.assert_close(ways, ways.round(), atol=1e-9, rtol=0)
        assert ways.round().abs().max() <= STEPS
        assert bool((ways != 0).any()) == bool(speed)
    first = reference_corrections(case.model, before, trial.batches()[0].tokens)
    assert first.keys() == named_buffers(case.model).keys()
    assert trial.batches()[0].tokens.shape == (4, SEQ_LEN)
