"""One table of choices that are codes: arrays hold every one of them, plans come back, and what is told can be said."""

import pytest

from meshwright.plans.arrays.short_plans import COLUMNS, from_shorts, short_plan, usual_codes, usual_values
from meshwright.plans.choices import CHOICES
from meshwright.plans.choices.plan_choice import format_choice
from meshwright.plans.forms.short import (
    DEFAULT_RANK_ORDER,
    Schedule,
    ShortLayout,
    ShortPipeline,
    ShortPlan,
    WorkloadSpec,
)
from meshwright.search.space.choices import SEARCHED_CHOICES
from meshwright.verbs.plan.constraints import parse_forbid, parse_keep

HEADER = ShortPlan(
    plan=1, model="a", cluster="h100-sxm-80gb x 8", workload=WorkloadSpec(seq_len=8, global_batch=8)
)
PLANS = (
    HEADER.model_copy(
        update={"layout": ShortLayout(tp=2, pp=4, sequence_parallel=False), "sharding": "none"}
    ),
    HEADER.model_copy(
        update={
            "layout": ShortLayout(
                dp_shard=4, tp=2, sequence_parallel=True, rank_order=DEFAULT_RANK_ORDER[::-1]
            ),
            "sharding": "zero3",
            "pipeline": ShortPipeline(
                schedule=Schedule(name="zb-v", memory_limit=0.5), micro_batch=2, virtual_stages=2
            ),
            "recompute": ("layernorm", "mlp"),
        }
    ),
)


def test_arrays_have_a_column_for_every_choice_and_values_for_its_codes():
    arrays = from_shorts(list(PLANS))
    assert arrays.columns.keys() == {*COLUMNS}
    assert arrays.values.keys() == usual_values().keys() == {*CHOICES}
    assert set(SEARCHED_CHOICES) <= set(CHOICES)
    assert {name: column.tolist() for name, column in usual_codes(2).items()} == {
        key: [0, 0] for key in CHOICES
    }


def test_plans_come_back_from_arrays():
    arrays = from_shorts(list(PLANS))
    assert [short_plan(arrays, row, HEADER) for row in range(2)] == list(PLANS)


@pytest.mark.parametrize("column", CHOICES)
def test_what_is_told_of_a_choice_can_be_kept_and_forbidden(column):
    choice, arrays = CHOICES[column], from_shorts(list(PLANS))
    values = arrays.values[column]
    assert [choice.of(plan) for plan in PLANS] == [values[int(code)] for code in getattr(arrays, column)]
    for value in values:
        if not getattr(value, "given_knobs", None):  # knobs are kept by names of their own
            said = f"{choice.name}={format_choice(value)}"
            assert {format_choice(kept) for kept in parse_keep([said]).values()} == {format_choice(value)}
            assert parse_forbid([said]) == {choice.name: (parse_keep([said])[choice.name],)}
