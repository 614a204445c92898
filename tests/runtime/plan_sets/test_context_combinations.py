"""Context parallelism of every form with everything else that cuts a step's work, and alone with what layers do."""

from dataclasses import replace
from itertools import combinations

import pytest
from context_combinations import FAMILIES, FORMS, TWO_DIMENSIONS, three_by_three, together
from covering_plans import Proven, told
from single_device_check import equal_to_one_device

from meshwright.plans.context_parallel import Context

LONG = Proven("llama", cp=4, micro_batches=1, layers=2)
"""Four ranks of a ring: a rank has one before it and another one behind it."""
BALANCED = (("aux_loss_alpha", 0.5), ("bias_update_speed", 0.05))
"""Losses and corrections that look at whole sequences."""
ALONE = [
    *(replace(LONG, context=form) for form in FORMS if form != "ulysses"),
    *(replace(LONG, context=Context(form=form, pieces="contiguous")) for form in ("ring", "token-ring")),
    *(replace(LONG, model=family) for family in FAMILIES[1:]),
    *(replace(LONG, model="mistral", context=form) for form in ("all-gather", "rsa")),
    *(
        replace(LONG, cp=2, context=form, recompute=what)
        for form in FORMS
        for what in ("full", ("core_attn",))
    ),
    *(replace(LONG, cp=2, model="gpt_oss", context=form) for form in ("ring", "all-gather", "ulysses")),
    replace(LONG, cp=2, model="deepseek_v3", recompute=("mla_up_proj",), context="ulysses", sizes=BALANCED),
    replace(LONG, cp=2, tp=2, sequence_parallel=True, ep=4, model="qwen3_moe"),
    replace(LONG, cp=2, micro_batch=2, micro_batches=2),
    replace(LONG, context=TWO_DIMENSIONS["ring of ulysses"], recompute=("core_attn", "layernorm")),
]


def named(plan):
    return f"{plan.model} {told(plan)}"


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("plan", ALONE, ids=named)
def test_a_plan_with_cut_sequences_computes_and_exchanges_what_it_should(plan):
    equal_to_one_device(plan)


@pytest.mark.slow
@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("plan", three_by_three(), ids=named)
def test_three_parts_together(plan):
    equal_to_one_device(plan)


def test_every_two_parts_are_in_a_triple():
    triples = together(3)
    assert set(together(2)) == {
        pair for triple in triples for pair in combinations(triple, 2) if "context" in dict(pair)
    }
