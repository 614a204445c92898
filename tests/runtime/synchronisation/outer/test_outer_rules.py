"""Outer optimizers against PyTorch's, and against the papers' formulas."""

import pytest
import torch

from meshwright.plans.synchronisation.outer_optimizer import OUTERS as PLAN_OUTERS
from meshwright.plans.synchronisation.outer_optimizer import Outer
from meshwright.runtime.synchronisation.outer import OUTERS, update_anchor
from meshwright.runtime.synchronisation.outer.outer_momentum import staleness_penalty

STEPS = 5


def _draws(seed):
    draw = torch.Generator().manual_seed(seed)
    return [torch.randn(11, generator=draw, dtype=torch.float64) for _ in range(STEPS + 1)]


def _moved(outer, seed=0):
    """Return the anchor behind each step, and its moments."""
    anchor, *changes = _draws(seed)
    moments = {} if outer is None else {key: torch.zeros_like(anchor) for key in outer.moments}
    path = []
    for number, change in enumerate(changes, start=1):
        before = change.clone()
        update_anchor(outer, anchor, change, moments, number)
        assert torch.equal(change, before)
        path.append(anchor.clone())
    return path, moments


def _trained(optimizer, seed=0, **options):
    """Return a parameter behind each step of an optimizer of PyTorch."""
    parameter, *changes = _draws(seed)
    parameter.requires_grad_()
    steps = optimizer([parameter], **options)
    path = []
    for change in changes:
        parameter.grad = change
        steps.step()
        path.append(parameter.detach().clone())
    return path


ORACLES = [
    ({"sgd": {"lr": 0.3}}, torch.optim.SGD, {"lr": 0.3}),
    ({"momentum": {"lr": 0.3, "momentum": 0.8}}, torch.optim.SGD, {"lr": 0.3, "momentum": 0.8}),
    ({"nesterov": {"lr": 0.7}}, torch.optim.SGD, {"lr": 0.7, "momentum": 0.9, "nesterov": True}),
    ({"adam": {"lr": 0.1}}, torch.optim.Adam, {"lr": 0.1}),
    (
        {"adam": {"lr": 0.1, "betas": (0.8, 0.95), "epsilon": 1e-3}},
        torch.optim.Adam,
        {"lr": 0.1, "betas": (0.8, 0.95), "eps": 1e-3},
    ),
]


@pytest.mark.parametrize(("written", "optimizer", "options"), ORACLES)
def test_rules_are_those_of_pytorch(written, optimizer, options):
    path, _ = _moved(Outer(**written))
    for mine, theirs in zip(path, _trained(optimizer, **options), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-13)


def test_every_rule_of_the_plan_is_here_and_compared():
    assert tuple(OUTERS) == PLAN_OUTERS
    assert {name for written, _, _ in ORACLES for name in written} == set(OUTERS)


def test_without_an_optimizer_the_anchor_moves_to_the_mean():
    path, _ = _moved(None)
    anchor, *changes = _draws(0)
    torch.testing.assert_close(path[-1], anchor - sum(changes), rtol=0, atol=1e-13)


def test_momentum_is_slowmo_with_a_constant_inner_rate():
    inner_rate, rate, decay = 0.05, 0.6, 0.7
    path, _ = _moved(Outer(momentum={"lr": rate, "momentum": decay}))
    anchor, *changes = _draws(0)
    slow = torch.zeros_like(anchor)
    for change, mine in zip(changes, path, strict=True):
        slow = decay * slow + change / inner_rate
        anchor = anchor - rate * inner_rate * slow
        torch.testing.assert_close(mine, anchor, rtol=0, atol=1e-13)


def test_clipped_momentum_moves_an_element_by_no_more():
    path, moments = _moved(Outer(momentum={"lr": 0.5, "clip": 0.4}))
    anchors = [_draws(0)[0], *path]
    moved = [(b - a).abs().max().item() for a, b in zip(anchors, path, strict=False)]
    assert max(moved) == pytest.approx(0.5 * 0.4)
    assert moments["outer_first"].abs().max() <= 0.4
    unclipped, _ = _moved(Outer(momentum={"lr": 0.5, "clip": 1e9}))
    assert torch.equal(unclipped[-1], _moved(Outer(momentum={"lr": 0.5}))[0][-1])


def test_the_penalty_is_one_without_a_gap_and_grows_with_it():
    change = torch.tensor([2.0, 2.0, 2.0, 0.0, 0.0])
    gap = torch.tensor([0.0, 2.0, -6.0, 1.0, 0.0])
    assert staleness_penalty(gap, change).tolist() == [1.0, 1.5, 1.75, 2.0, 1.0]


def test_a_penalty_damps_changes_behind_the_first():
    plain, _ = _moved(Outer(momentum={"lr": 0.3}))
    damped, _ = _moved(Outer(momentum={"lr": 0.3, "staleness": True}))
    assert torch.equal(plain[0], damped[0])
    _, first, second, *_ = _draws(0)
    change = second / staleness_penalty(0.3 * first, second)
    expected = damped[0] - 0.3 * (0.9 * first + change)
    torch.testing.assert_close(damped[1], expected, rtol=0, atol=1e-13)
    assert not torch.allclose(damped[1], plain[1])
