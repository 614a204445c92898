from itertools import pairwise
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_questions import (
    ENCODERS,
    MODELS,
    as_set,
    asked,
    choices_of,
    is_legal,
    is_worth_searching,
    random_question,
    raw_choices,
)

from meshwright.model.operators.recompute_sets import SETS
from meshwright.plans.arrays.short_plans import short_plan
from meshwright.plans.choices.recompute_sets import operator_sets
from meshwright.search.space.constraints import format_choice
from meshwright.search.space.legal_plans import divisors, enumerate_space, factorisations
from meshwright.search.space.variants import all_variants

QUESTIONS = 36


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("seed", range(QUESTIONS))
def test_the_space_is_what_walking_through_all_plans_finds(seed):
    _check_space(random_question(seed))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("kind", "without"), [("dense", True), ("sparse", False)])
def test_a_stack_without_sequence_parallelism_has_plans_with_whole_sequences(kind, without):
    question = asked(kind, 8, "megatron-deepspeed-2022", seq_len=50, batch=8)
    plans = _check_space(question).plans
    assert len(plans) >= 20
    assert (plans.tp > 1).any() == without


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(("devices", "seq_len"), [(4, 48), (6, 60), (8, 64)])
@pytest.mark.parametrize("kind", ENCODERS)
def test_encoders_leave_the_plans_that_their_rules_allow(kind, devices, seq_len):
    plans = _check_space(asked(kind, devices, "generic", seq_len=seq_len, batch=devices)).plans
    assert (plans.tp > 1).any()
    assert (plans.pp > 1).any() == (kind == "images")


def _check_space(question):
    raw = list(raw_choices(question.setting))
    wanted = [c for c in raw if is_worth_searching(c, question.setting) and is_legal(c, question)]
    space = enumerate_space(question.setting)
    assert as_set(choices_of(space)) == as_set(wanted)
    assert space.considered == len(raw)
    assert sum(space.rejected.values()) == len(raw) - len(wanted)
    assert all(count > 0 for count in space.rejected.values())
    cuts = (space.plans.tp > 1) & question.setting.stack.sequence_parallel
    assert (space.plans.sequence_parallel == cuts).all()
    return space


ALL_VARIANTS = [("dense", 6, "megatron-core", 2), ("dense", 4, "meshwright", 4), ("sparse", 4, "generic", 2)]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "devices", "stack", "batch"), ALL_VARIANTS)
def test_with_all_variants_too(kind, devices, stack, batch):
    question = asked(kind, devices, stack, layers=2, seq_len=24, batch=batch)
    variants = all_variants(question.setting, {})
    raw = list(raw_choices(question.setting, variants))
    worth = (c for c in raw if is_worth_searching(c, question.setting, variants))
    wanted = [choice for choice in worth if is_legal(choice, question)]
    space = enumerate_space(question.setting, variants=variants)
    assert as_set(choices_of(space)) == as_set(wanted)
    assert len(space) == len(space.plans)
    assert space.considered == len(raw)
    assert sum(space.rejected.values()) == len(raw) - len(wanted)


@pytest.mark.parametrize(("kind", "stack"), [("dense", "meshwright"), ("latent", "generic")])
def test_sets_of_operators_run_different_things_again(kind, stack):
    setting = asked(kind, 4, stack, seq_len=96, batch=4).setting
    found = operator_sets(setting)
    again = [frozenset(name for each in names for name in SETS[each]) for names in found]
    assert len(set(again)) == len(again)
    assert frozenset(SETS["core_attn"]) not in again  # which selective is
    assert len(found) == (6 if kind == "dense" else 7)
    if kind == "latent":
        assert all(one < other for one, other in pairwise(again))


@pytest.mark.slow
def test_the_questions_have_all_kinds_of_models_and_are_not_trivial():
    questions = [random_question(seed) for seed in range(QUESTIONS)]
    assert {question.header.model for question in questions} == set(MODELS)
    assert {question.setting.cluster.devices for question in questions} >= {5, 12, 24}
    spaces = [enumerate_space(question.setting) for question in questions]
    assert sum(len(space.plans) >= 20 for space in spaces) >= QUESTIONS * 3 / 4
    assert len({reason.split(" = ")[0] for space in spaces for reason in space.rejected}) >= 12


FORBIDS = [
    {"tp": (2, 3)},
    {"sharding": ("zero1",), "schedule": ("interleaved-1f1b",)},
    {"recompute": ("full", ("layernorm",)), "sequence_parallel": (False,)},
    {"rank_order": (("tp", "cp", "pp", "dp_shard", "dp_replicate"),), "micro_batch": (1,)},
]


@pytest.mark.parametrize("forbid", FORBIDS, ids=str)
def test_what_is_forbidden_is_a_filter_of_the_space(forbid):
    setting = asked("dense", 12, "megatron-core", seq_len=96, batch=12).setting
    variants = all_variants(setting, {})
    whole = enumerate_space(setting, variants=variants)
    left = enumerate_space(setting, {}, None, variants, forbid)
    names = {name: [format_choice(value) for value in values] for name, values in forbid.items()}
    names = {"order" if name == "rank_order" else name: values for name, values in names.items()}

    def allowed(choice):
        cut = choice["tp"] > 1
        return not any(
            str(choice[name]).split(" ")[0] in values
            and (name != "sequence_parallel" or cut or values == ["false"])
            for name, values in names.items()
        )

    wanted = [choice for choice in choices_of(whole) if allowed(choice)]
    assert 0 < len(wanted) < len(whole)
    assert as_set(choices_of(left)) == as_set(wanted)
    assert sum(left.rejected.values()) == left.considered - len(left)


KEEPS = [
    {"tp": 2},
    {"pp": 3, "micro_batch": 1},
    {"sharding": "zero1"},
    {"virtual_stages": 2},
    {"recompute": "full", "ep": 2, "etp": 1},
    {"dp_replicate": 2, "dp_shard": 3},
    {"tp": 7},
    {"sequence_parallel": "true"},
]


@pytest.mark.parametrize("keep", KEEPS, ids=str)
def test_what_is_kept_is_a_filter_of_the_space(keep):
    question = asked("sparse", 12, "megatron-core", seq_len=96, batch=12)
    asked_for = {
        name: value == "true" if value in ("true", "false") else value for name, value in keep.items()
    }
    whole, kept = enumerate_space(question.setting), enumerate_space(question.setting, asked_for)
    wanted = [c for c in choices_of(whole) if all(c[name] == value for name, value in keep.items())]
    assert as_set(choices_of(kept)) == as_set(wanted)
    assert kept.considered == whole.considered
    assert sum(kept.rejected.values()) == kept.considered - len(kept.plans)
    assert any("as asked" in reason for reason in kept.rejected)


def test_a_gather_that_is_kept_leaves_the_plans_that_can_gather_so():
    question = asked("sparse", 12, "meshwright", seq_len=96, batch=12)
    whole = enumerate_space(question.setting)
    kept = enumerate_space(question.setting, {"gather": "per-unit"})
    wanted = [choice for choice in choices_of(whole) if choice["gather"] == "per-unit"]
    alone = {(choice["sharding"], choice["schedule"]) for choice in wanted}
    assert alone == {("zero3", "interleaved-1f1b")}
    assert wanted
    assert as_set(choices_of(kept)) == as_set(wanted)
    plan = short_plan(kept.plans, 0, question.header)
    assert plan.gather == "per-unit"
    other = asked("sparse", 12, "megatron-core", seq_len=96, batch=12)
    assert len(enumerate_space(other.setting, {"gather": "per-unit"}).plans) == 0


def test_large_micro_batches_and_wide_experts_are_not_searched():
    question = asked("shared", 24, "megatron-core", layers=2, seq_len=96, batch=128 * 3)
    plans = enumerate_space(question.setting).plans
    assert plans.micro_batch.max() == 64
    assert set(plans.etp) == {1, 2, 3, 4, 6}  # 12 divides the experts' width, and is more than a node has


def test_a_question_without_a_legal_plan_has_an_empty_space():
    question = asked("dense", 7, "megatron-core", seq_len=96, batch=3)
    space = enumerate_space(question.setting)
    assert len(space.plans) == 0
    assert sum(space.rejected.values()) == space.considered > 0


@given(st.integers(1, 3000))
@settings(deadline=None, max_examples=60)
def test_divisors(number):
    assert list(divisors(number)) == [d for d in range(1, number + 1) if number % d == 0]


@given(st.integers(1, 400), st.integers(1, 5))
@settings(deadline=None, max_examples=60)
def test_factorisations_are_all_different_and_as_many_as_the_formula_says(number, parts):
    rows = [tuple(row) for row in factorisations(number, parts).tolist()]
    assert len(set(rows)) == len(rows)
    assert {prod(row) for row in rows} == {number}
    assert len(rows) == _ordered_factorisations(number, parts)


def _ordered_factorisations(number, parts):
    """Π over primes of C(exponent + parts − 1, parts − 1)."""
    count, prime = 1, 2
    while number > 1:
        exponent = 0
        while number % prime == 0:
            number, exponent = number // prime, exponent + 1
        count = count * prod(range(exponent + 1, exponent + parts)) // prod(range(1, parts))
        prime += 1
    return count
