"""Spaces and lower bounds of plans without backward passes."""

from dataclasses import replace

import numpy as np
import pytest
from small_questions import as_set, asked, choices_of, is_legal, is_worth_searching, raw_choices

from meshwright.cost.closed_form.evaluate_plans import evaluate
from meshwright.cost.lower_bounds.coarse_time_and_memory import VariantBounds
from meshwright.cost.lower_bounds.state_memory import state_memory_bound
from meshwright.cost.lower_bounds.tight_step_time import tight_bounds
from meshwright.plans.forms.short import OptimizerSpec
from meshwright.plans.setting import Setting
from meshwright.search.space.legal_plans import enumerate_space

ROUNDED = 1 + 1e-9


def question(kind, perturbations, **of):
    usual = asked(kind, 8, "generic", **{"layers": 3, "seq_len": 48, "batch": 4} | of)
    spec = OptimizerSpec(name="zo-sgd", perturbations=perturbations)
    workload = replace(usual.setting.workload, optimizer=spec.optimizer)
    setting = Setting.of(usual.setting.model, usual.setting.cluster, workload, usual.setting.stack)
    header = usual.header.workload.model_copy(update={"optimizer": spec})
    return replace(usual, setting=setting, header=usual.header.model_copy(update={"workload": header}))


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("perturbations", ["both", "split"])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_the_space_is_what_walking_through_all_plans_finds(kind, perturbations):
    asked_for = question(kind, perturbations)
    raw = [c for c in raw_choices(asked_for.setting) if c["schedule"] == "1f1b"]
    wanted = [c for c in raw if is_worth_searching(c, asked_for.setting) and is_legal(c, asked_for)]
    space = enumerate_space(asked_for.setting)
    assert as_set(choices_of(space)) == as_set(wanted)
    assert len(space.plans) >= 10
    assert sum(space.rejected.values()) == len(raw) - len(wanted)


@pytest.mark.parametrize("perturbations", ["both", "split"])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_no_plan_takes_or_holds_less_than_its_bounds(kind, perturbations):
    setting = question(kind, perturbations, layers=8, seq_len=2048, batch=32, width=16).setting
    plans = enumerate_space(setting).plans
    scores, coarse, tight = (
        evaluate(plans, setting),
        VariantBounds(plans, setting).of(plans),
        tight_bounds(plans, setting),
    )
    assert len(np.unique(plans.pp)) > 1
    for seconds in (coarse.step_s, tight.step_s):
        assert (seconds <= scores.step_s * ROUNDED).all()
        assert (seconds / scores.step_s).mean() > 0.5
    for held in (coarse.total_bytes, tight.total_bytes, state_memory_bound(plans, setting)):
        assert (held <= scores.total_bytes * ROUNDED).all()
