"""Suggestions work as written: the problem is gone, and no other one has come."""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from plan_cases import DENSE, LATENT, SPARSE, STACK, cluster, graph, short_plan, short_plans

from meshwright.cluster.load import load_cluster
from meshwright.errors import InputError, Problem
from meshwright.model.load import load_model
from meshwright.plans.forms.conversion import expand
from meshwright.plans.overrides import apply_overrides, try_overrides
from meshwright.plans.resolve import resolve_with
from meshwright.plans.rules.check_plan import problems_by_rule
from meshwright.plans.suggested_settings import suggested_settings, suggestion_text
from meshwright.stack.load import load_stack

NOUNS = tuple((graph(arch), cluster(64), STACK) for arch in (DENSE, SPARSE, LATENT))
QUESTIONS = (
    ("llama-3.1-70b", "megatron-core", 64),
    ("qwen3-30b-a3b", "megatron-core", 32),
    ("llama-3.1-8b", "torchtitan", 16),
    ("qwen3-30b-a3b", "torchtitan", 64),
    ("llama-3.1-8b", "accelerate", 8),
    ("mixtral-8x7b", "deepspeed", 16),
    ("deepseek-v3", "meshwright", 256),
)
degree = st.sampled_from((1, 2, 3, 4, 6, 8, 16, 64))


def keyed(plan, nouns, severities=("error",)):
    found = problems_by_rule(expand(plan, nouns[0].architecture), *nouns)
    return [(rule, problem) for rule, problem in found if problem.severity in severities]


def keys(found):
    return {(rule, problem.field) for rule, problem in found}


def is_readable(plan, nouns):
    """Return true if the plan has a long form: too many devices or stages have none."""
    try:
        expand(plan, nouns[0].architecture)
    except InputError:
        return False
    return True


def shown(plan, nouns):
    try:
        return resolve_with(plan, *nouns, stack_binds=True).warnings
    except InputError as error:
        return error.problems


def assert_suggestions_work(plan, nouns):
    """Apply each alternative of each suggestion, as it is written, to the plan."""
    problems = shown(plan, nouns)
    severities = {problem.severity for problem in problems}
    before = keyed(plan, nouns, severities)
    assert [p.field for p in problems] == [p.field for _, p in before]
    errors = keys(keyed(plan, nouns))
    for (rule, _), problem in zip(before, problems, strict=True):
        for change in suggested_settings(problem):
            after = apply_overrides(plan, change, None)
            assert (rule, problem.field) not in keys(keyed(after, nouns, ("error", "warning"))), str(problem)
            assert keys(keyed(after, nouns)) <= errors, str(problem)


def assert_readable_work(plan, nouns):
    assume(is_readable(plan, nouns))
    assert_suggestions_work(plan, nouns)


@settings(max_examples=8)
@given(short_plans(), st.sampled_from(NOUNS))
def test_of_a_plan_with_many_faults(plan, nouns):
    assert_readable_work(plan, nouns)


def loaded(model, stack, devices):
    return load_model(model), load_cluster(f"h100-sxm-80gb x {devices}"), load_stack(stack)


@st.composite
def changed_plans(draw):
    """A plan for a model of the zoo, and one or two keys that are set to anything."""
    question = draw(st.sampled_from(QUESTIONS))
    devices = question[2]
    plan = short_plan({"dp_shard": devices}, sharding="zero3", workload={"global_batch": 256})
    values = {
        **dict.fromkeys(("tp", "pp", "cp", "ep", "etp", "dp_shard", "dp_replicate"), degree),
        "micro_batch": degree,
        "virtual_stages": degree,
        "global_batch": st.integers(1, 300),
        "seq_len": st.integers(1, 9000),
        "sequence_parallel": st.sampled_from(("true", "false")),
        "sharding": st.sampled_from(("none", "zero1", "zero2", "zero3")),
        "schedule": st.sampled_from(("gpipe", "1f1b", "interleaved-1f1b", "zb-v", "dualpipe")),
        "context": st.sampled_from(("ring", "ulysses", "all-gather", "ring+ulysses3")),
        "precision": st.sampled_from(("bf16", "fp8", "mxfp8")),
        "gather": st.sampled_from(("per-layer", "per-step", "per-unit")),
    }
    for name in draw(st.lists(st.sampled_from(sorted(values)), min_size=1, max_size=3, unique=True)):
        plan = (
            try_overrides(plan, (f"{name}={draw(values[name])}",), draw(st.sampled_from((None, devices))))
            or plan
        )
    return plan, question


@settings(max_examples=20)
@given(changed_plans())
def test_of_a_plan_with_a_few_faults(drawn):
    plan, question = drawn
    assert_readable_work(plan, loaded(*question))


@pytest.mark.slow
@settings(max_examples=2000)
@given(changed_plans())
def test_of_many_plans(drawn):
    plan, question = drawn
    assert_readable_work(plan, loaded(*question))


def test_a_stage_count_that_does_not_divide_is_mended_by_a_legal_one():
    nouns = loaded(*QUESTIONS[0])
    plan = short_plan({"pp": 3, "dp_shard": 8, "tp": 3}, workload={"global_batch": 64})
    for problem in shown(plan, nouns):
        assert suggested_settings(problem), str(problem)
    assert_suggestions_work(plan, nouns)


@pytest.mark.parametrize(
    ("field", "text", "settings"),
    [
        ("layout.tp", "tp: 4, dp_shard: 2", [("tp=4", "dp_shard=2")]),
        ("workload.global_batch", "global_batch: 64 (gives 8 micro-batches)", [("global_batch=64",)]),
        ("pipeline.schedule", "pp: 2, or schedule: 1f1b, tp: 1", [("pp=2",), ("schedule=1f1b", "tp=1")]),
        ("sharding", "one of none, zero1", [("sharding=none",), ("sharding=zero1",)]),
        ("pipeline.schedule", "did you mean gpipe?", [("pipeline.schedule=gpipe",)]),
        ("gather", "sharding: zero3, or take gather out", [("sharding=zero3",), ("gather=null",)]),
        ("layout.rank_order", "[tp, pp]", [("layout.rank_order=[tp, pp]",)]),
        ("stack", "stack: generic or torchtitan", []),
        ("cluster", "a cluster file whose node has host_memory_gib", []),
        ("memory_bytes.total", "a little less memory", []),
    ],
)  # fmt: skip
def test_a_suggestion_is_read_as_settings(field, text, settings):
    found = suggested_settings(Problem(field, 1, "a rule", text))
    assert list(found) == settings


@pytest.mark.parametrize(
    ("keys", "hints"),
    [
        ({"outer": {"nesterov": {"lr": 0.7, "momentum": 2}}}, ["momentum: 0.9"]),
        ({"every": {"qsr": {"base": 0, "alpha": -1.0}}}, ["base: 4", "alpha: 0.0175"]),
    ],
)
def test_suggestions_for_entries_of_a_list_stay_those_of_the_rule(keys, hints):
    entry = {"state": "parameter", "over": "dp_replicate", **keys}
    plan = short_plan({"dp_replicate": 64}, sharding="none", stack="generic", synchronise=(entry,))
    with pytest.raises(InputError) as error:
        resolve_with(plan, graph(DENSE), cluster(64), load_stack("generic"))
    assert [problem.suggestion for problem in error.value.problems] == hints


def test_settings_are_written_as_lines_of_a_plan_file():
    assert suggestion_text(("pipeline.schedule=1f1b", "tp=2")) == "schedule: 1f1b, tp: 2"
