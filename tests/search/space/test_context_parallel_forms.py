"""Forms of context parallelism that a search leaves out are never better than the ones that it keeps."""

import numpy as np
import pytest
from small_questions import asked

from meshwright.cost.closed_form.evaluate_plans import evaluate
from meshwright.cost.lower_bounds.context_parallel_pruning import undominated_forms
from meshwright.plans.arrays.distinct_rows import distinct
from meshwright.plans.arrays.short_plans import COLUMNS
from meshwright.search.space.legal_plans import enumerate_space
from meshwright.search.space.variants import all_variants
from meshwright.verbs.plan.search_space import space_bounds, without_slower_context_forms

ROUNDED = 1 + 1e-9
PLANS = 150
QUESTIONS = [
    ("learned", 20, "megatron-core", 240),
    ("latent", 16, "megatron-core", 4096),
    ("sparse", 16, "generic", 96),
    ("dense", 8, "meshwright", 2048),
]


def spaces(kind, devices, stack, seq_len):
    setting = asked(kind, devices, stack, seq_len=seq_len, batch=4).setting
    return setting, enumerate_space(setting, variants=all_variants(setting, {}))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("question", QUESTIONS, ids=str)
def test_a_form_that_is_left_out_is_no_better_than_one_that_is_kept(question):
    setting, space = spaces(*question)
    plans = space.plans
    plans = plans.take((plans.cp > 1) & (plans.offload == 0))
    same = distinct([getattr(plans, name) for name in COLUMNS if name != "context"]).inverse
    some = np.isin(same, np.random.default_rng(0).permutation(same.max() + 1)[:PLANS])
    plans, same = plans.take(some), same[some]
    scores = evaluate(plans, setting)
    legal = np.ones((len(plans.values["context"]), len(plans)), dtype=bool)
    for code in range(len(legal)):
        legal[code] = np.isin(same, same[plans.context == code])
    worth, rows = undominated_forms(plans, legal, setting), np.arange(len(plans))
    kept, quick = worth.unbeaten[plans.context, rows], worth.quick[plans.context, rows]
    assert 0 < kept.sum() < len(plans)
    for row in np.flatnonzero(~kept):
        others = kept & (same == same[row])
        faster = scores.step_s[others] <= scores.step_s[row] * ROUNDED
        assert (faster & (scores.total_bytes[others] <= scores.total_bytes[row] * ROUNDED)).any()
    for row in np.flatnonzero(~quick):
        assert scores.step_s[quick & (same == same[row])].min() <= scores.step_s[row] * ROUNDED


@pytest.mark.slow
@pytest.mark.parametrize("question", QUESTIONS, ids=str)
def test_bounds_hold_whatever_form_is_chosen_later(question):
    setting, whole = spaces(*question)
    space = without_slower_context_forms(whole, setting)
    assert 0 < len(space) < len(whole)
    assert space.later.slower.any()
    for code, bounds in enumerate(space_bounds(space, setting)):
        legal = np.flatnonzero(space.legal[code])
        rows = np.random.default_rng(code).permutation(legal)[:PLANS]
        every = space.every(np.full(len(rows), code), rows)
        alone = every.plans.offload == 0
        scores = evaluate(every.plans.take(alone), setting)
        of = rows[every.of[alone]]
        assert (bounds.step_s[of] <= scores.step_s * ROUNDED).all()
        assert (bounds.total_bytes[of] <= scores.total_bytes * ROUNDED).all()
