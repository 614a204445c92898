"""Every rule of the validator sees the mistake that it is for."""

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from lowered_programs import lowered, short_plan, short_plans

from meshwright.program.checks.checked_program import CheckedProgram
from meshwright.program.checks.validate_program import RULES, validate
from meshwright.schedules.action import parse_actions

INTERLEAVED = {"schedule": "interleaved-1f1b", "virtual_stages": 2}
BASE = lowered(short_plan("moe", {"pp": 4, "dp_shard": 2, "ep": 2}, sharding="zero1"))
CHUNKED = lowered(short_plan("dense", {"pp": 2, "tp": 2}, pipeline=INTERLEAVED))
GATHERED = lowered(short_plan("dense", {"pp": 2, "dp_shard": 2}, sharding="zero3"))
TWICE = lowered(
    short_plan(
        "moe",
        {"pp": 4, "dp_shard": 2},
        sharding="zero1",
        pipeline={"schedule": "dualpipe", "virtual_stages": 2},
        stack="generic",
    )
)
UNITS = lowered(
    short_plan(
        "dense",
        {"pp": 2, "dp_shard": 2},
        sharding="zero3",
        gather="per-unit",
        stack="meshwright",
        pipeline={"schedule": "zeropp", "virtual_stages": 2},
    )
)
OFFLOADED = lowered(
    short_plan(
        "dense", {"pp": 4}, stack="meshwright", offload={"activations": "all"}, workload={"global_batch": 8}
    )
)
LATE = lowered(short_plan("dense", {"dp_shard": 2}, sharding="zero1"), overlap_parameter_gather=False)
FORWARD = lowered(
    short_plan(
        "dense",
        {"pp": 2, "dp_replicate": 2},
        stack="meshwright",
        workload={"global_batch": 8, "optimizer": "zo-sgd"},
    )
)
AFTERWARDS = lowered(
    short_plan(
        "dense",
        {"pp": 2, "dp_shard": 2},
        pipeline={"schedule": {"name": "zb-h1", "step_validation": "after"}},
        sharding="zero1",
        stack="meshwright",
    )
)


def rules_broken(plan, program) -> set[str]:
    """Names of the rules that object."""
    case = CheckedProgram(program, plan.model)
    return {rule.__name__ for rule in RULES if any(True for _ in rule(case))}


def with_list(program, rank, actions):
    lists = list(program.lists)
    lists[rank] = tuple(actions)
    return replace(program, lists=tuple(lists))


def edited(rank, change):
    """A mistake in one rank's list, made on its text."""

    def edit(program):
        text = " ".join(map(str, program.lists[rank]))
        new = change(text)
        assert new != text
        return with_list(program, rank, parse_actions(new))

    return edit


def taken_out(action):
    """A change of a list's text: without an action."""
    return lambda text: " ".join(word for word in text.split() if word != action)


def moved(text, actions, behind):
    """A list's text with some actions behind another one."""
    return text.replace(f"{actions} ", "").replace(f"{behind} ", f"{behind} {actions} ")


def swap(one, other):
    def change(text):
        words = text.split()
        i, j = words.index(one), words.index(other)
        words[i], words[j] = words[j], words[i]
        return " ".join(words)

    return change


def drop(word):
    return lambda text: " ".join(w for w in text.split() if w != word)


def move_to_end(word):
    return lambda text: drop(word)(text) + " " + word


def move_to_front(word):
    return lambda text: word + " " + drop(word)(text)


def move_before(word, other):
    return lambda text: drop(word)(text).replace(other, f"{word} {other}")


def add(word):
    return lambda text: text + " " + word


def split_backward(word):
    """B becomes W then I: the wrong way round."""
    stage, m = word.split("B")
    return lambda text: text.replace(f" {word} ", f" {stage}W{m} {stage}I{m} ")


LISTS = {
    "a forward pass is missing": (BASE, edited(1, drop("1F3")), "every_pass_once"),
    "a backward pass is missing": (BASE, edited(1, drop("1B3")), "every_pass_once"),
    "a forward pass is there twice": (BASE, edited(1, add("1F3")), "every_pass_once"),
    "a weight gradient too many": (BASE, edited(1, add("1W3")), "every_pass_once"),
    "a pass of another rank": (BASE, edited(1, add("2F3")), "every_pass_once"),
    "a micro-batch too many": (BASE, edited(1, add("1F99")), "every_pass_once"),
    "a stage that is not there": (BASE, edited(1, add("9F0")), "every_pass_once"),
    "backward before forward": (BASE, edited(3, swap("3F0", "3B0")), "data_before_use"),
    "a weight gradient before its input gradient": (
        BASE,
        edited(1, split_backward("1B0")),
        "data_before_use",
    ),
    "a receive after its consumer": (BASE, edited(1, swap("1RECV_F0", "1F0")), "data_before_use"),
    "a gradient received after its use": (BASE, edited(1, swap("1RECV_B0", "1B0")), "data_before_use"),
    "a send before its producer": (BASE, edited(1, swap("1F0", "1SEND_F0")), "data_before_use"),
    "a gradient sent before it is made": (BASE, edited(1, swap("1B0", "1SEND_B0")), "data_before_use"),
    "two messages are mixed up": (BASE, edited(1, swap("1RECV_F0", "1RECV_F1")), "data_before_use"),
    "a send is missing": (BASE, edited(1, drop("1SEND_F2")), "every_message_once"),
    "a receive is missing": (BASE, edited(1, drop("1RECV_F2")), "every_message_once"),
    "a message that nobody needs": (BASE, edited(0, add("0RECV_F0")), "every_message_once"),
    "a message is sent twice": (BASE, edited(1, add("1SEND_F2")), "every_message_once"),
    "ranks wait for each other": (BASE, edited(0, move_to_front("0RECV_B0")), "every_message_once"),
    "a micro-batch of the other chain": (TWICE, edited(1, add("1F4")), "every_pass_once"),
    "a pass of a chain is missing": (TWICE, edited(1, drop("6F4")), "every_pass_once"),
    "a message from one chain to the other": (TWICE, edited(3, add("3SEND_F0")), "every_message_once"),
    "too much in flight": (
        BASE,
        lambda program: replace(program, in_flight=(1, *program.in_flight[1:])),
        "memory_as_declared",
    ),
}
STEPS = {
    "a reduction is missing": (BASE, edited(1, drop("1REDUCE")), "step_actions_once"),
    "a reduction is there twice": (BASE, edited(1, add("1REDUCE")), "step_actions_once"),
    "a reduction of another rank's stage": (BASE, edited(1, add("2REDUCE")), "step_actions_once"),
    "no optimizer": (BASE, edited(2, drop("STEP")), "step_actions_once"),
    "no norm on one rank": (BASE, edited(2, drop("NORM")), "step_actions_once"),
    "no tied reduction on one of two ranks": (BASE, edited(0, drop("REDUCE_TIED")), "step_actions_once"),
    "a tied reduction between the ends": (BASE, edited(1, add("REDUCE_TIED")), "step_actions_once"),
    "no gather": (BASE, edited(1, drop("1GATHER")), "step_actions_once"),
    "parameters are never freed": (GATHERED, edited(1, drop("1FREE")), "step_actions_once"),
    "reduced before the last backward pass": (
        BASE,
        edited(1, swap("1REDUCE", "1B7")),
        "step_actions_in_order",
    ),
    "norm before a reduction": (BASE, edited(1, swap("1REDUCE", "NORM")), "step_actions_in_order"),
    "norm before the tied reduction": (BASE, edited(0, swap("REDUCE_TIED", "NORM")), "step_actions_in_order"),
    "optimizer before the norm": (BASE, edited(1, swap("STEP", "NORM")), "step_actions_in_order"),
    "optimizer in the middle": (CHUNKED, edited(0, move_to_front("STEP")), "step_actions_in_order"),
    "gathered after the first pass": (GATHERED, edited(1, move_to_end("1GATHER")), "step_actions_in_order"),
    "freed before the last pass": (GATHERED, edited(1, move_before("1FREE", "1B7")), "step_actions_in_order"),
    "gathered before the optimizer": (LATE, edited(0, move_to_front("0GATHER")), "step_actions_in_order"),
    "copies of layers are not summed up": (TWICE, edited(1, drop("1REDUCE_MIRRORED")), "step_actions_once"),
    "copies are summed up before they are reduced": (
        TWICE,
        edited(1, swap("1REDUCE", "1REDUCE_MIRRORED")),
        "step_actions_in_order",
    ),
    "norm before the copies are summed up": (
        TWICE,
        edited(1, swap("1REDUCE_MIRRORED", "NORM")),
        "step_actions_in_order",
    ),
    "copies are summed up in two orders": (
        TWICE,
        edited(1, swap("1REDUCE_MIRRORED", "6REDUCE_MIRRORED")),
        "copies_exchange_gradients",
    ),
    "copies drift apart": (
        TWICE,
        lambda p: replace(
            p, collectives={k: c for k, c in p.collectives.items() if k[1] != "REDUCE_MIRRORED"}
        ),
        "copies_exchange_gradients",
    ),
    "copies exchange unlike gradients": (
        TWICE,
        lambda p: replace(
            p, collectives=p.collectives | {(1, "REDUCE_MIRRORED"): p.collectives[0, "REDUCE_MIRRORED"]}
        ),
        "copies_exchange_gradients",
    ),
    "gathered for the first unit only": (
        UNITS,
        edited(0, lambda text: "0GATHER " + drop("0GATHER")(text)),
        "unit_exchanges_in_order",
    ),
    "gathered while it is whole": (
        UNITS,
        edited(0, lambda text: text.replace("0GATHER", "0GATHER 0GATHER", 1)),
        "unit_exchanges_in_order",
    ),
    "freed in the middle of a run": (
        UNITS,
        edited(1, lambda text: text.replace("1F1", "1FREE 1F1", 1)),
        "unit_exchanges_in_order",
    ),
    "freed and never needed": (
        UNITS,
        edited(1, lambda text: text.replace("NORM", "1GATHER 1FREE NORM")),
        "unit_exchanges_in_order",
    ),
    "never freed": (UNITS, edited(0, lambda text: text + " 0GATHER"), "unit_exchanges_in_order"),
    "the last unit's gradients are not reduced": (
        UNITS,
        edited(0, lambda text: "".join(text.rsplit("0REDUCE ", 1))),
        "unit_exchanges_in_order",
    ),
    "nothing to reduce": (
        UNITS,
        edited(0, lambda text: text.replace("0REDUCE", "0REDUCE 0REDUCE", 1)),
        "unit_exchanges_in_order",
    ),
    "a stage that another rank gathers": (
        UNITS,
        edited(0, lambda text: text.replace("0GATHER", "0GATHER 1GATHER", 1)),
        "unit_exchanges_in_order",
    ),
    "a collective of one rank": (
        BASE,
        lambda p: replace(
            p,
            collectives=p.collectives
            | {(1, "REDUCE"): (replace(p.collectives[1, "REDUCE"][0], axes=("tp",)),)},
        ),
        "groups_exist",
    ),
    "a collective of nothing": (
        BASE,
        lambda p: replace(
            p,
            collectives=p.collectives
            | {(1, "REDUCE"): (replace(p.collectives[1, "REDUCE"][0], logical_bytes=0),)},
        ),
        "groups_exist",
    ),
    "what is on the host does not come back": (OFFLOADED, edited(0, drop("0RELOAD1")), "every_copy_once"),
    "what stays comes back": (OFFLOADED, edited(0, drop("0OFFLOAD1")), "every_copy_once"),
    "it goes out twice": (OFFLOADED, edited(0, add("0OFFLOAD1")), "every_copy_once"),
    "a stage of another rank goes out": (OFFLOADED, edited(0, add("1OFFLOAD1 1RELOAD1")), "every_copy_once"),
    "a stage with nothing on the host goes out": (
        BASE,
        edited(0, add("0OFFLOAD1 0RELOAD1")),
        "every_copy_once",
    ),
    "it goes out before it is there": (OFFLOADED, edited(0, swap("0F1", "0OFFLOAD1")), "copies_in_order"),
    "it comes back too late": (OFFLOADED, edited(0, swap("0RELOAD1", "0B1")), "copies_in_order"),
    "it comes back before it is out": (
        OFFLOADED,
        edited(0, swap("0RELOAD1", "0OFFLOAD1")),
        "copies_in_order",
    ),
    "it comes back before the copy out has ended": (
        OFFLOADED,
        edited(0, lambda text: drop("0RELOAD1")(text).replace("0OFFLOAD1", "0OFFLOAD1 0RELOAD1")),
        "copies_in_order",
    ),
    "tied tables drift apart": (
        BASE,
        lambda p: replace(p, collectives={k: c for k, c in p.collectives.items() if k[1] != "REDUCE_TIED"}),
        "groups_exist",
    ),
}


def row(index, **change):
    def edit(program):
        rows = list(program.states)
        rows[index] = replace(rows[index], **change)
        return replace(program, states=tuple(rows))

    return edit


def stage(at, **change):
    def edit(program):
        stages = list(program.stages)
        stages[at] = replace(stages[at], **{k: v(stages[at]) for k, v in change.items()})
        return replace(program, stages=tuple(stages))

    return edit


STATES = {
    "a row is missing": (BASE, lambda p: replace(p, states=p.states[1:]), "every_state_once"),
    "a row is there twice": (BASE, lambda p: replace(p, states=(*p.states, p.states[3])), "every_state_once"),
    "a row of no unit": (BASE, row(0, name="other"), "every_state_once"),
    "elements are missing": (BASE, row(2, elements=BASE.program.states[2].elements - 1), "every_state_once"),
    "elements too many": (BASE, row(2, elements=BASE.program.states[2].elements + 1), "every_state_once"),
    "a layer is missing": (BASE, row(4, layers=(), repeat=1), "every_state_once"),
    "wrong repeat": (BASE, row(4, repeat=7), "every_state_once"),
    "cut over the wrong axis": (BASE, row(0, layout=("ep",)), "every_state_once"),
    "sharded in one row only": (BASE, row(0, layout=("tp", "cp", "dp_shard")), "sharded_alike"),
    "parameters sharded and gradients not": (
        GATHERED,
        lambda p: replace(
            p, states=tuple(replace(r, layout=("tp",)) if r.kind == "gradient" else r for r in p.states)
        ),
        "sharded_alike",
    ),
    "a block is missing": (BASE, stage(1, blocks=lambda s: s.blocks[1:]), "every_layer_once"),
    "a layer is in two stages": (BASE, stage(1, layers=lambda s: (1, *s.layers[1:])), "every_layer_once"),
    "a stage on another rank": (BASE, stage(1, rank=lambda s: 2), "every_layer_once"),
    "a layer is missing in the second chain": (
        TWICE,
        stage(6, blocks=lambda s: s.blocks[1:]),
        "every_layer_once",
    ),
    "layers shared with several ranks": (
        TWICE,
        stage(4, rank=lambda s: 1),
        "copies_on_ranks_of_their_own",
    ),
    "copies on one rank": (TWICE, stage(4, rank=lambda s: 0), "copies_on_ranks_of_their_own"),
    "stages out of order": (BASE, stage(1, index=lambda s: 2), "every_layer_once"),
    "a pass without a layer": (
        BASE,
        lambda p: replace(p, bodies=p.bodies | {(1, "F"): p.bodies[1, "F"][1:]}),
        "bodies_hold_stages",
    ),
    "a pass forwards that goes backwards": (
        BASE,
        lambda p: replace(p, bodies=p.bodies | {(0, "F"): p.bodies[0, "B"]}),
        "bodies_hold_stages",
    ),
    "a pass that is not there": (
        BASE,
        lambda p: replace(p, bodies={k: b for k, b in p.bodies.items() if k != (0, "B")}),
        "bodies_hold_stages",
    ),
}
AFTER = {
    "a step that nobody validates": (AFTERWARDS, edited(0, taken_out("VALIDATE")), "step_actions_once"),
    "sums that are not passed on": (AFTERWARDS, edited(0, taken_out("SEND_NORM")), "step_actions_once"),
    "sums that come from nowhere": (
        AFTERWARDS,
        edited(1, lambda text: text.replace("RECV_NORM", "RECV_NORM RECV_TOTAL")),
        "step_actions_once",
    ),
    "a step before the sums": (
        AFTERWARDS,
        edited(1, lambda text: text.replace("RECV_NORM STEP", "STEP RECV_NORM")),
        "validation_in_order",
    ),
    "sums that are sent before they are complete": (
        AFTERWARDS,
        edited(0, lambda text: text.replace("NORM SEND_NORM", "SEND_NORM NORM")),
        "validation_in_order",
    ),
    "all sums are passed on when the step was repeated": (
        AFTERWARDS,
        edited(1, lambda text: text.replace("SEND_TOTAL VALIDATE", "VALIDATE SEND_TOTAL")),
        "validation_in_order",
    ),
    "a backward pass before the step is validated": (
        AFTERWARDS,
        edited(0, lambda text: moved(text, "RECV_TOTAL VALIDATE", "0I0")),
        "validation_in_order",
    ),
    "a pass to be repeated whose input is sent once": (
        AFTERWARDS,
        edited(1, lambda text: moved(text, "SEND_TOTAL VALIDATE", "1RECV_F2")),
        "validation_in_order",
    ),
    "sums that two ranks wait for": (
        AFTERWARDS,
        edited(1, lambda text: moved(text, "SEND_TOTAL VALIDATE", "1RECV_F2")),
        "every_message_once",
    ),
}
PERTURBED = {
    "a pass before its parameters": (FORWARD, edited(0, swap("PERTURB", "0F0")), "perturbed_before_passes"),
    "parameters that are not moved": (FORWARD, edited(1, drop("PERTURB")), "step_actions_once"),
    "a backward pass": (FORWARD, edited(1, lambda text: text + " 1B0"), "every_pass_once"),
}
MISTAKES = LISTS | STEPS | STATES | AFTER | PERTURBED


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_seen_by_its_rule(name):
    plan, make, rule = MISTAKES[name]
    assert rule in rules_broken(plan, make(plan.program))


@pytest.mark.parametrize(
    "plan",
    [BASE, CHUNKED, GATHERED, TWICE, LATE, AFTERWARDS, OFFLOADED, FORWARD],
    ids=["base", "chunked", "gathered", "twice", "late", "afterwards", "offloaded", "forward"],
)
def test_the_programs_without_mistakes_are_good(plan):
    assert validate(plan.program, plan.model) == []


def test_every_rule_has_a_mistake():
    assert {rule for _, _, rule in MISTAKES.values()} == {rule.__name__ for rule in RULES}


@given(short_plans(), st.data())
@settings(max_examples=36, deadline=None)
def test_no_action_can_be_left_out_or_repeated(short, data):
    plan = lowered(short)
    rank = data.draw(st.integers(0, plan.program.pipeline_ranks - 1))
    actions = list(plan.program.lists[rank])
    at = data.draw(st.integers(0, len(actions) - 1))
    assume(not (plan.program.parts.by_unit and actions[at].kind == "REDUCE"))  # reduced later is as right
    fewer = with_list(plan.program, rank, actions[:at] + actions[at + 1 :])
    more = with_list(plan.program, rank, [*actions, actions[at]])
    assert validate(fewer, plan.model)
    assert validate(more, plan.model)


@given(short_plans(), st.data())
@settings(max_examples=36, deadline=None)
def test_lists_of_two_ranks_can_not_change_places(short, data):
    plan = lowered(short)
    assume(plan.program.pipeline_ranks > 1)
    first, *rest = plan.program.lists
    assert validate(replace(plan.program, lists=(*rest, first)), plan.model)


def test_a_long_pipeline_of_many_micro_batches_is_sound():
    keys = {"schedule": "interleaved-1f1b", "virtual_stages": 2}
    deep = lowered(short_plan("deep", {"pp": 16}, workload={"global_batch": 64}, pipeline=keys))
    assert validate(deep.program, deep.model) == []
