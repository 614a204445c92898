"""A search finds what pricing every legal plan finds: its best plans, to the last digit, on random small questions."""

import random
from dataclasses import replace

import numpy as np
import pytest
from coarse_bounds_of_plans import coarse_bounds
from small_questions import MODELS, asked, best_of_kinds

from meshwright.cost.closed_form.evaluate_plans import evaluate
from meshwright.cost.constant_values import value_in
from meshwright.cost.constants import constants
from meshwright.cost.constants_file import with_constants
from meshwright.cost.lower_bounds.tight_step_time import tight_bounds
from meshwright.cost.memory.memory_breakdown import fits
from meshwright.cost.named_constants import named_constants
from meshwright.search.space.legal_plans import enumerate_space
from meshwright.stack.load import load_stack
from meshwright.verbs.plan.search_space import search, search_scope, searched_space

STACKS = ("megatron-core", "torchtitan", "deepspeed", "maxtext", "generic", "meshwright", "megatron-lm-2021")
QUESTIONS = 210
QUICK = (0, 2, 4)
"""Seeds of questions that take seconds."""
MOST_PLANS = 10_000
TOP = 3
ROUNDED = 1 + 1e-9
LEFT = ("usable_memory", "usable_host_memory")
"""Constants that the questions' own memory stands for."""
FITTING = (1.0, 0.5, 0.05)
"""Shares of the plans that have room: memory is cut so that no more have."""


def drawn(seed):
    """A question that has plans, though not too many to price, and how many of them have room."""
    rng = random.Random(seed)
    while True:
        kind, stack = rng.choice(tuple(MODELS)), rng.choice(STACKS)
        devices, layers = rng.choice((2, 4, 6, 8)), rng.choice((2, 3, 4, 6))
        batch, width = rng.choice((1, 2, 4, 6, 8)), rng.choice((1, 4))
        question = asked(kind, devices, stack, layers=layers, seq_len=128, batch=batch, width=width)
        if 0 < len(enumerate_space(question.setting)) <= MOST_PLANS:
            return question.setting, rng.choice(FITTING)


def with_room_for(setting, total_bytes, share):
    """The same devices with memory for so many of the plans that hold these bytes."""
    pool = setting.cluster.pool
    memory = int(np.quantile(total_bytes, share) / constants()["usable_memory"]) + 1
    less = replace(pool, device=replace(pool.device, memory_bytes=memory))
    return replace(setting, cluster=replace(setting.cluster, pools=(less,)))


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.slow][seed in QUICK :]) for seed in range(QUESTIONS)]
)
def test_the_best_plans_are_those_of_pricing_every_plan(seed):
    setting, share = drawn(seed)
    compare_with_every_plan(setting, share)


def compare_with_every_plan(setting, share):
    """Search a setting with memory for a share of its plans, and price all of them."""
    scope = search_scope({}, None, TOP, setting)
    plans = searched_space(scope, setting).plans
    every = evaluate(plans, setting)
    setting = with_room_for(setting, every.total_bytes, share)
    fit = fits(every.total_bytes, setting.cluster) & every.hosts_hold
    assert share - 0.05 <= fit.mean()
    _, found = search(scope, setting)
    wanted = best_of_kinds(plans, every.step_s, fit)[:TOP]
    assert best_of_kinds(found.plans, found.step_s, found.fits)[:TOP] == pytest.approx(wanted, rel=1e-9)
    assert found.overfull <= int((~fit).sum())
    assert len(found.plans) + found.overfull + found.slower == len(plans)


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.slow][seed in QUICK :]) for seed in range(QUESTIONS)]
)
def test_bounds_hold_under_any_given_constants(seed):
    setting, share = drawn(seed)
    compare_with_every_plan(with_constants(setting, other_constants(setting, seed)), share)


def other_constants(setting, seed):
    """Return a random value in its range for each constant: zero, or up to ten times less or more than usual."""
    rng, found = random.Random(seed), {}
    for one in named_constants():
        name = f"*/{one.name}" if one.owner == "stack" else one.name
        if one.owner != "tier" and one.name not in LEFT:
            value = rng.choice((0.0, *[value_in(setting, name) * 10 ** rng.uniform(-1, 1) for _ in range(3)]))
            found[name] = next(v for v in (value, value_in(setting, name)) if one.range.holds(v))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", [pytest.param(s, marks=[pytest.mark.slow][s < 1 :]) for s in range(24)])
def test_nothing_on_the_hosts_is_never_slower(seed):
    setting, _ = drawn(seed)
    setting = replace(setting, stack=load_stack("meshwright"))
    plans = searched_space(search_scope({}, None, TOP, setting), setting).plans
    out = np.flatnonzero(plans.leaves_devices)
    copying = plans.take(np.random.default_rng(seed).permutation(out)[:200])
    alone = copying.with_columns({"offload": np.zeros_like(copying.offload)})
    longer, usual = evaluate(copying, setting), evaluate(alone, setting)
    assert (longer.step_s >= usual.step_s * (1 - 1e-12)).all()
    assert (coarse_bounds(copying, setting).step_s <= longer.step_s * ROUNDED).all()
    assert (coarse_bounds(copying, setting).total_bytes <= longer.total_bytes * ROUNDED).all()
    floor = tight_bounds(copying, setting)
    assert (floor.step_s[longer.fits] <= longer.step_s[longer.fits] * ROUNDED).all()
    assert (floor.total_bytes <= longer.total_bytes * ROUNDED).all()
