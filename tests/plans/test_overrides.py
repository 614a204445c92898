from itertools import product as product_of
from math import prod

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from plan_cases import DENSE, short_plan, short_plans

from meshwright.errors import InputError, PlanError
from meshwright.plans.context_parallel import Context
from meshwright.plans.forms.conversion import expand
from meshwright.plans.overrides import apply_overrides, moved_degrees, overrides_between
from meshwright.schedules.choice import ScheduleChoice

BETWEEN = [
    short_plan(),
    short_plan({"dp_shard": 64}, sharding="zero3", recompute="full"),
    short_plan({"dp_replicate": 64}, sharding="none", recompute=("mlp", "layernorm")),
    short_plan({"pp": 4, "dp_shard": 4, "tp": 4, "sequence_parallel": False}, sharding="zero3"),
    short_plan({"pp": 4, "dp_shard": 4, "tp": 4}, sharding="zero3", gather="per-layer"),
    short_plan(
        {
            "pp": 2,
            "dp_replicate": 2,
            "dp_shard": 16,
            "rank_order": ("tp", "cp", "pp", "dp_shard", "dp_replicate"),
        },
        sharding="zero2",
        pipeline={"schedule": {"name": "zero-bubble", "memory_limit": 0.5}, "micro_batch": 2},
    ),
    short_plan({"pp": 8, "cp": 8}, sharding="none", pipeline={"schedule": "zb-v", "virtual_stages": 2}),
]
CHOSEN = ("layout", "sharding", "gather", "pipeline", "recompute")
FREE = ("pp", "dp_replicate", "dp_shard", "cp", "tp")


def product(plan):
    return prod(getattr(plan.layout, axis) for axis in FREE)


def degrees(plan):
    return tuple(getattr(plan.layout, axis) for axis in FREE)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (["tp=4"], (4, 1, 4, 1, 4)),
        (["tp=1"], (4, 1, 16, 1, 1)),
        (["pp=2", "cp=2"], (2, 1, 8, 2, 2)),
        (["layout.pp = 8"], (8, 1, 4, 1, 2)),
        (["dp_replicate=2"], (4, 2, 4, 1, 2)),
        (["dp_shard=4"], (4, 2, 4, 1, 2)),
        (["dp_shard=2", "dp_replicate=4"], (4, 4, 2, 1, 2)),
        (["sharding=none"], (4, 8, 1, 1, 2)),
        (["sharding=none", "tp=4"], (4, 4, 1, 1, 4)),
        (["sharding=zero3"], (4, 1, 8, 1, 2)),
        (["seq_len=8192"], (4, 1, 8, 1, 2)),
    ],
)
def test_data_parallelism_absorbs_a_degree(changes, expected):
    plan = apply_overrides(short_plan(), changes, 64)
    assert degrees(plan) == expected
    assert product(plan) == 64


def test_sharding_turned_on_shards_the_replicas():
    plan = short_plan({"pp": 4, "dp_replicate": 8, "tp": 2}, sharding="none")
    assert degrees(apply_overrides(plan, ["sharding=zero1"], 64)) == (4, 1, 8, 1, 2)
    assert degrees(apply_overrides(plan, ["sharding=zero1", "dp_replicate=2"], 64)) == (4, 2, 4, 1, 2)


def test_without_sharding_dp_replicate_absorbs():
    plan = short_plan({"pp": 4, "dp_shard": 8, "tp": 2}, sharding="none")
    assert degrees(apply_overrides(plan, ["tp=1"], 64)) == (4, 16, 1, 1, 1)


def test_names_find_their_section_and_values_their_type():
    changes = [
        "micro_batch=2",
        "pipeline.schedule=gpipe",
        "workload.seq_len=8192",
        "recompute=[mlp, core_attn]",
        "sequence_parallel=false",
        "rank_order=[pp, tp, cp, dp_shard, dp_replicate]",
        "gather=per-step",
        "stack=torchtitan@0.3",
    ]
    plan = apply_overrides(short_plan(), changes, 64)
    assert (plan.pipeline.micro_batch, plan.pipeline.schedule, plan.workload.seq_len) == (2, "gpipe", 8192)
    assert plan.recompute == ("mlp", "core_attn")
    assert plan.layout.sequence_parallel is False
    assert plan.layout.rank_order[0] == "pp"
    assert (plan.gather, plan.stack) == ("per-step", "torchtitan@0.3")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (["context=ulysses"], "ulysses"),
        (["context=ring+ulysses2"], "ring+ulysses2"),
        (["layout.context={form: ring, ulysses: 2}"], "ring+ulysses2"),
        (["context.ulysses=4"], "all-gather+ulysses4"),
        (["context.pieces=contiguous"], Context(form="all-gather", ulysses=2, pieces="contiguous")),
        (["context.ulysses=1"], "all-gather"),
    ],
)
def test_a_form_of_context_parallelism_has_one_word_everywhere(changes, expected):
    plan = short_plan({"pp": 4, "cp": 8, "dp_shard": 2, "context": "all-gather+ulysses2"})
    assert apply_overrides(plan, changes, 64).layout.context == expected


@pytest.mark.parametrize("word", ["ring+ulysses1", "ulysses+ulysses2", "ring+", "ring+ulysses", "+ulysses2"])
def test_a_word_that_is_no_form_is_refused_with_an_example(word):
    with pytest.raises(InputError) as caught:
        apply_overrides(short_plan(), [f"context={word}"], 64)
    (problem,) = caught.value.problems
    assert "must be one of ring, all-gather" in problem.rule
    assert problem.suggestion == "write `context: ring+ulysses4`"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (["schedule=zb-h1"], "zb-h1"),
        (["pipeline.schedule.memory_limit=0.5"], ("1f1b", 0.5, None)),
        (["memory_limit=0.5", "schedule=zero-bubble"], ("zero-bubble", 0.5, None)),
        (["schedule.unit=8", "schedule=zeropp"], ("zeropp", None, 8)),
        (["schedule={name: zero-bubble, memory_limit: 2}"], ("zero-bubble", 2.0, None)),
    ],
)
def test_a_schedule_is_set_by_name_and_by_its_knobs(changes, expected):
    schedule = apply_overrides(short_plan(), changes, 64).pipeline.schedule
    found = schedule if isinstance(schedule, str) else (schedule.name, schedule.memory_limit, schedule.unit)
    assert found == expected


def test_knobs_are_kept_with_their_schedule_and_go_with_it():
    plan = apply_overrides(short_plan(), ["schedule=zero-bubble", "memory_limit=0.5"], 64)
    assert apply_overrides(plan, ["pp=2"], 64).pipeline.choice == ScheduleChoice("zero-bubble", 0.5)
    assert apply_overrides(plan, ["unit=4"], 64).pipeline.choice == ScheduleChoice("zero-bubble", 0.5, 4)
    delayed = apply_overrides(plan, ["schedule=1f1b", "schedule.in_flight=3"], 64).pipeline.choice
    assert delayed == ScheduleChoice("1f1b", in_flight=3)
    assert apply_overrides(plan, ["memory_limit=null"], 64).pipeline.schedule == "zero-bubble"
    assert apply_overrides(plan, ["schedule=zb-h2"], 64).pipeline.schedule == "zb-h2"
    afterwards = apply_overrides(plan, ["step_validation=after"], 64).pipeline.choice
    assert afterwards == ScheduleChoice("zero-bubble", 0.5, step_validation="after")


def test_no_setting_changes_nothing():
    assert apply_overrides(short_plan(), [], 64) == short_plan()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (["name=1f1b"], "unknown key"),
        (["memory_limit=-1"], "pipeline.schedule.memory_limit = -1: must be more than 0"),
        (["schedule.unit=0"], "must be at least 1"),
        (["in_flight=0"], "must be at least 1"),
        (["tpp=4"], "tpp' unknown key|did you mean tp"),
        (["modle=4"], "did you mean model"),
        (["plan=2"], "unknown key"),
        (["layout=4"], "unknown key"),
        (["pipeline.tp=4"], "unknown key"),
        (["tp"], "must read name=value"),
        (["tp="], "must read name=value"),
        (["=3"], "unknown key"),
        (["tp=2", "layout.tp=4"], "set twice"),
        (["tp=four"], "layout.tp = 'four': must be a whole number"),
        (["tp=0"], "must be at least 1"),
        (["tp=[1"], "cannot be read as YAML"),
        (["sharding=zero4"], "must be 'none', 'zero1'"),
    ],
)
def test_wrong_settings_are_named(changes, expected):
    with pytest.raises(InputError, match=expected):
        apply_overrides(short_plan(), changes, 64)


def test_all_wrong_settings_come_at_once():
    with pytest.raises(InputError) as caught:
        apply_overrides(short_plan(), ["tpp=1", "x", "zz=3"], 64)
    assert len(caught.value.problems) == 3


def test_a_wrong_value_hides_no_other_problem():
    with pytest.raises(InputError) as caught:
        apply_overrides(short_plan(), ["sharding=zero4", "pp=3", "zz=1", "micro_batch=none"], 64)
    fields = sorted(problem.field for problem in caught.value.problems)
    assert fields == ["layout.dp_shard", "pipeline.micro_batch", "set", "sharding"]


def test_without_a_number_of_devices_nothing_is_absorbed():
    assert degrees(apply_overrides(short_plan(), ["tp=4"], None)) == (4, 1, 8, 1, 4)


@pytest.mark.parametrize(
    ("changes", "moved"),
    [
        (["tp=4"], [("layout.dp_shard", 4)]),
        (["tp=4", "layout.dp_shard=4"], []),
        (["dp_shard=4"], [("layout.dp_replicate", 2)]),
        (["sharding=none"], [("layout.dp_replicate", 8), ("layout.dp_shard", 1)]),
        (["seq_len=8192"], []),
    ],
)
def test_degrees_that_moved_without_being_named_are_told(changes, moved):
    before = short_plan()
    found = moved_degrees(before, apply_overrides(before, changes, 64), changes)
    assert [(problem.field, problem.value) for problem in found] == moved
    assert {problem.severity for problem in found} <= {"warning"}


def test_a_degree_that_cannot_be_absorbed():
    with pytest.raises(PlanError) as caught:
        apply_overrides(short_plan(), ["tp=3"], 64)
    (problem,) = caught.value.problems
    assert problem.field == "layout.dp_shard"
    assert problem.rule == (
        "dp_shard = devices / (pp·dp_replicate·cp·tp) = 64 / (4·1·1·3) = 5.33333 is not whole"
    )
    assert problem.suggestion == "tp one of 1, 2, 4, 8, 16"


@settings(max_examples=60, deadline=None)
@given(
    changes=st.dictionaries(
        st.sampled_from((*FREE, "ep", "etp")), st.sampled_from((1, 2, 3, 4, 8, 2**20)), max_size=3
    ),
    sharding=st.sampled_from(("none", "zero1", "zero3")),
    before=st.sampled_from(("none", "zero1")),
)
def test_the_product_stays_or_a_problem_says_why(changes, sharding, before):
    texts = [f"{axis}={value}" for axis, value in changes.items()] + [f"sharding={sharding}"]
    both_given = {"dp_replicate", "dp_shard"} <= set(changes)
    try:
        plan = apply_overrides(short_plan(sharding=before), texts, 64)
    except PlanError:
        mesh = {"pp": 4, "cp": 1, "tp": 2} | changes
        assert 64 % prod(value for axis, value in mesh.items() if axis in FREE) or not both_given
        return
    assert all(getattr(plan.layout, axis) == value for axis, value in changes.items())
    assert product(plan) == 64 or both_given


@pytest.mark.parametrize(("before", "after"), [*product_of(BETWEEN, repeat=2)])
def test_the_settings_between_two_plans_make_one_the_other(before, after):
    found = overrides_between(before, after)
    changed = apply_overrides(before, found, 64)
    assert expand(changed, DENSE) == expand(after, DENSE)
    assert not overrides_between(changed, after)
    assert bool(found) == (expand(before, DENSE) != expand(after, DENSE))


@given(short_plans(), short_plans())
def test_so_it_is_for_plans_of_any_degrees(before, after):
    after = before.model_copy(update={name: getattr(after, name) for name in CHOSEN})
    try:
        wanted = expand(after, DENSE)
    except PlanError:
        assume(False)
    assert expand(apply_overrides(before, overrides_between(before, after), None), DENSE) == wanted


def test_what_follows_from_a_degree_is_no_setting_but_the_degrees_that_go_with_it_are():
    plan = short_plan({"pp": 4, "dp_shard": 16}, sharding="zero1")
    assert overrides_between(plan, apply_overrides(plan, ["tp=2"], 64)) == ("dp_shard=8", "tp=2")


ENTRIES = ({"state": "parameter", "over": "dp_replicate", "every": 8},)
LOOSE = short_plan({"dp_replicate": 4, "dp_shard": 16}, sharding="none", synchronise=ENTRIES)


@pytest.mark.parametrize(
    ("setting", "key", "value"),
    [
        ("synchronise.0.every=50", "every", 50),
        ("synchronise.0.every.qsr={base: 4, alpha: 0.01}", "period", 4),
        ("synchronise.0.fragments.pattern=sequential", "fragments", {"count": 1, "pattern": "sequential"}),
        ("synchronise.0.compress={top_k: 0.1}", "compress", {"top_k": 0.1}),
        ("synchronise.0.outer.nesterov.lr=0.5", "outer", {"nesterov": {"lr": 0.5}}),
        ("synchronise.0.with=pairs", "partners", "pairs"),
    ],
)
def test_a_key_of_an_entry_is_set_by_its_place(setting, key, value):
    (entry,) = apply_overrides(LOOSE, [setting], 64).synchronise
    found = getattr(entry, key)
    wanted = type(found).model_validate(value) if isinstance(value, dict) else value
    assert found == wanted


def test_entries_themselves_are_set_as_a_whole():
    text = "synchronise=[{state: gradient, over: dp_replicate}]"
    assert [entry.state for entry in apply_overrides(LOOSE, [text], 64).synchronise] == ["gradient"]


@pytest.mark.parametrize(
    ("setting", "field"),
    [
        ("synchronise.1.every=50", "synchronise.1.every"),
        ("synchronise.0.evry=50", "synchronise.0.evry"),
        ("every=50", "set"),
    ],
)
def test_keys_that_no_entry_has_are_named(setting, field):
    with pytest.raises(InputError) as caught:
        apply_overrides(LOOSE, [setting], 64)
    assert [problem.field for problem in caught.value.problems] == [field]


@pytest.mark.parametrize("sharding", ["zero1", "none"])
def test_sharding_moves_no_axis_that_entries_name(sharding):
    assert degrees(apply_overrides(LOOSE, [f"sharding={sharding}"], 64)) == (1, 4, 16, 1, 1)
