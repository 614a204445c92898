"""Programs of a vocabulary that is spread over the pipeline ranks: what is held, computed and exchanged, in order."""

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from lowered_programs import legal, lowered, lowered_long, model, short_plan

from meshwright.model.transforms.vocabulary_parallel import with_vocabulary_parallel
from meshwright.plans.forms.conversion import expand
from meshwright.program.checks.expected_state_coverage import coverage
from meshwright.program.checks.validate_program import validate
from meshwright.program.pass_items import Compute
from meshwright.program.pipeline_messages.nccl_deadlock_check import check_messages, posted_ahead
from meshwright.program.pipeline_vocabulary import share_items, share_work
from meshwright.schedules.action import EXCHANGES, Action, parse_actions
from meshwright.schedules.dependencies import StageChains
from meshwright.schedules.vocabulary import FORMS

SCHEDULES = {"1f1b": 1, "gpipe": 1, "interleaved-1f1b": 2, "zb-h1": 1, "v-half": 2, "zb-v": 2}


def plan(name="dense", form="vocab-1", schedule="1f1b", layout=None, **keys):
    pipeline = {"schedule": {"name": schedule, "vocabulary": form}, "virtual_stages": SCHEDULES[schedule]}
    return short_plan(name, layout or {"pp": 4}, pipeline=pipeline, stack="generic", **keys)


@st.composite
def plans(draw):
    schedule = draw(st.sampled_from(tuple(SCHEDULES)))
    form = draw(st.sampled_from([name for name, form in FORMS.items() if form.only in (None, schedule)]))
    layout = {"pp": draw(st.sampled_from((2, 4))), "tp": draw(st.sampled_from((1, 2)))}
    layout |= {"dp_shard": draw(st.sampled_from((1, 2))), "cp": draw(st.sampled_from((1, 2)))}
    layout["sequence_parallel"] = draw(st.sampled_from((None, False)))
    name = draw(st.sampled_from(("dense", "gpt", "moe")))
    sharding = draw(st.sampled_from(("none", "zero1", "zero2", "zero3")))
    short = plan(name, form, schedule, layout, sharding=sharding)
    assume(legal(short))
    return short


@given(plans())
@settings(max_examples=20, deadline=None)
def test_a_lowered_plan_keeps_all_laws(short):
    made = lowered(short)
    assert validate(made.program, made.model) == []


@given(plans())
@settings(max_examples=20, deadline=None)
def test_shares_add_up_to_the_whole_tables_and_a_tied_one_is_there_once(short):
    made = lowered(short)
    spread = with_vocabulary_parallel(made.model)
    rows = [row for row in coverage(made.program, spread) if row.kind == "parameter"]
    assert sum(row.elements for row in rows) == made.model.parameters
    entries = {(e.stage, e.name): e for e in made.program.states if e.kind == "parameter"}
    for row in rows:
        entry = entries[row.unit.stage, row.unit.name]
        ranks = made.program.group_size(entry.layout)
        assert entry.repeat * entry.elements * ranks == row.elements + row.copies + row.padding


@given(plans())
@settings(max_examples=20, deadline=None)
def test_ranks_of_a_pipeline_hold_equally_much_of_the_tables(short):
    program = lowered(short).program
    shares = {share.index: [] for share in program.shares}
    for entry in program.states:
        if entry.stage in shares:
            shares[entry.stage].append((entry.name, entry.kind, entry.elements))
    assert len(shares) == program.pipeline_ranks
    assert len(set(map(tuple, shares.values()))) == 1


@pytest.mark.parametrize("form", FORMS)
def test_each_product_of_the_head_is_computed_once(form):
    work = share_work(FORMS[form])
    phases = sorted(phase for kind in ("S", "T") for op, phase in work[kind] if op.__name__ == "Linear")
    assert phases == ["F", "I", "W"]
    assert [phase for kind in ("E", "D") for _, phase in work[kind]] == ["F", "W"]
    spread = lowered(plan(form=form))
    items = share_items(with_vocabulary_parallel(spread.model), FORMS[form])
    assert all(isinstance(item, Compute) for of in items.values() for item in of)


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("form", FORMS)
def test_what_is_exchanged_for_a_micro_batch_by_hand(form, tp):
    """n tokens of hidden size h: five times 2nh in all between pipeline ranks, and 12 bytes a token of statistics."""
    program = lowered(plan(form=form, layout={"pp": 4, "tp": tp})).program
    n, h = 128, 64
    found = {}
    for (stage, kind), collectives in program.collectives.items():
        if stage == 4 and kind in EXCHANGES:
            found[kind] = [(c.kind, c.axes, c.logical_bytes) for c in collectives]
    over_tp = tp > 1
    gather = [("all-gather", ("tp",), 2 * n * h)] if over_tp else []
    scatter = [("reduce-scatter", ("tp",), 2 * n * h)] if over_tp else []
    statistics = [("all-reduce", ("tp", "pp"), size * n) for size in (4, 8)]
    gradient = [*scatter, ("reduce", ("pp",), 2 * n * h / tp)]
    last = {"REDUCE_S": statistics, "REDUCE_T": gradient}
    if FORMS[form].barriers == 1:
        last = {"REDUCE_S": statistics + gradient}
    assert found == {
        "REDUCE_E": [("reduce", ("pp",), 2 * n * h)],
        "BROADCAST_F": [("broadcast", ("pp",), 2 * n * h / tp), *gather],
        **last,
        "BROADCAST_B": [("broadcast", ("pp",), 2 * n * h)],
    }


def test_a_share_keeps_its_input_and_its_logits_from_s_to_t():
    program = lowered(plan()).program
    tokens, hidden, words = 128, 64, 1024 // 4
    assert program.activation_bytes[4:] == (2 * tokens * hidden + 10 * tokens * words,) * 4
    assert program.weight_gradient_bytes[4:] == (0,) * 4


def test_barriers_of_1f1b_keep_one_micro_batch_more_each():
    """Yeung et al. 2024, table 1: P + 2 and P + 1 micro-batches, 1.5·P interlaced."""
    most = {form: max(lowered(plan(form=form)).program.in_flight) for form in FORMS}
    assert most == {"vocab-1": 6, "vocab-2": 5, "interlaced": 6}


def changed(made, rank, change):
    lists = [list(actions) for actions in made.program.lists]
    change(lists[rank])
    return validate(replace(made.program, lists=tuple(map(tuple, lists))), made.model)


def swap(one, other):
    def change(actions):
        i, j = actions.index(one), actions.index(other)
        actions[i], actions[j] = actions[j], actions[i]

    return change


def test_a_pass_that_is_left_out_or_repeated_is_named():
    made = lowered(plan())
    (problem,) = changed(made, 1, lambda actions: actions.remove(Action("S", 5, 3)))
    assert (problem.field, problem.value, problem.rule) == ("lists.1", "5S3", "is there 0 times")
    problems = changed(made, 1, lambda actions: actions.insert(0, Action("D", 5, 3)))
    assert "is there 2 times" in [problem.rule for problem in problems]


def test_an_exchange_that_a_rank_leaves_out_is_named():
    (problem,) = changed(lowered(plan()), 2, lambda actions: actions.remove(Action("REDUCE_T", 6, 1)))
    assert (problem.field, problem.value, problem.rule) == (
        "lists.2",
        "6REDUCE_T1",
        "a message that is missing",
    )


def test_ranks_that_enter_exchanges_in_another_order_are_named():
    swapped = swap(Action("REDUCE_E", 7, 2), Action("REDUCE_E", 7, 3))
    rules = [problem.rule for problem in changed(lowered(plan()), 3, swapped)]
    assert any("a communicator keeps its order" in rule for rule in rules)


@pytest.mark.parametrize(
    ("first", "then", "rule"),
    [
        ("7S2", "7REDUCE_S2", "it makes a part of the sum"),
        ("7REDUCE_S2", "7T2", "it needs the softmax's sum"),
        ("7BROADCAST_B2", "7D2", "it needs what is broadcast"),
        ("3F2", "7BROADCAST_F2", "it is what is broadcast"),
    ],
)
def test_passes_and_exchanges_in_the_wrong_order_are_named(first, then, rule):
    (one,), (other,) = parse_actions(first), parse_actions(then)
    rules = [problem.rule for problem in changed(lowered(plan()), 3, swap(one, other))]
    assert rule in rules


def test_ranks_that_wait_for_each_others_sums_are_stuck():
    """Rank 0 looks up its rows behind the forward pass that needs the sum of them."""
    lists = [parse_actions("0F0 2E0 2REDUCE_E0"), parse_actions("3E0 3REDUCE_E0")]
    ways = StageChains(1, barriers=1, ranks=2, rows=True)
    (problem,) = check_messages(lists, (0,), ways=ways)
    assert "none can go on" in problem.rule
    ahead = [parse_actions("2E0 2REDUCE_E0 0F0"), lists[1]]
    assert check_messages(ahead, (0,), ways=ways) == []


def test_what_is_broadcast_waits_for_its_sender():
    ways = StageChains(1, barriers=1, ranks=2)
    sender, other = "0F0 1BROADCAST_F0 1S0 1REDUCE_S0 0B0 1T0", "2BROADCAST_F0 2S0 2REDUCE_S0 2T0"
    lists = [parse_actions(sender), parse_actions(other)]
    assert check_messages(lists, (0,), ways=ways) == []
    late = [parse_actions("0F0 1S0 1REDUCE_S0 0B0 1BROADCAST_F0 1T0"), lists[1]]
    (problem,) = check_messages(late, (0,), ways=ways)
    assert problem.value == "0B0 2BROADCAST_F0"


def test_a_plan_that_does_not_say_how_has_two_barriers():
    short = plan(form="vocab-1")
    long = expand(short, model("dense").architecture)
    silent = long.pipeline.schedule.model_copy(update={"vocabulary": None})
    unsaid = long.model_copy(update={"pipeline": long.pipeline.model_copy(update={"schedule": silent})})
    assert lowered_long(unsaid).program.signature() == lowered(short).program.signature()
    assert lowered(plan(form="vocab-2")).program.signature() != lowered(short).program.signature()


@given(plans())
@settings(max_examples=20, deadline=None)
def test_broadcasts_from_rank_to_rank_end_when_they_are_posted_so_far_ahead_and_not_less(short):
    program = lowered(short).program
    placement = tuple(stage.rank for stage in program.stages)
    ahead = posted_ahead(program.lists, placement, program.ways)
    assert 1 <= ahead <= program.micro_batches


def test_a_broadcast_waits_for_ranks_that_have_not_posted_their_side():
    """Rank 1 takes the second broadcast only behind what rank 0 makes of it: one micro-batch ahead is not enough."""
    ways = StageChains(3, barriers=1, ranks=3)
    lists = [
        parse_actions("3BROADCAST_F0 3BROADCAST_F1 0F0 0SEND_F0"),
        parse_actions("1RECV_F0 1F0 1SEND_F0 4BROADCAST_F0 4BROADCAST_F1"),
        parse_actions("5BROADCAST_F0 5BROADCAST_F1 2RECV_F0 2F0"),
    ]
    assert check_messages(lists, (0, 1, 2), ways=ways) == []
    assert posted_ahead(lists, (0, 1, 2), ways) == 2
