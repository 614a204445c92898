"""Laws of lowering over random legal plans."""

from collections import Counter

import pytest
from hypothesis import given, settings
from lowered_programs import CONFIGS, lowered, lowered_long, short_plan, short_plans

from meshwright.plans.files.plan_file import dump_plan, parse_plan
from meshwright.plans.forms.conversion import expand, shorten
from meshwright.program.checks.validate_program import validate
from meshwright.program.pass_items import Collective, Compute

laws = settings(max_examples=25, deadline=None)


@given(short_plans())
@laws
def test_a_lowered_plan_is_sound(short):
    plan = lowered(short)
    assert validate(plan.program, plan.model) == []


@given(short_plans())
@laws
def test_lowering_is_a_function(short):
    assert lowered(short).program.signature() == lowered(short).program.signature()


@given(short_plans())
@laws
def test_short_form_long_form_and_file_mean_the_same_program(short):
    plan = lowered(short)
    again = shorten(plan.long)
    assert again is not None
    assert expand(again, plan.model.architecture) == plan.long
    assert lowered(again).program.signature() == plan.program.signature()
    read = parse_plan(dump_plan(plan.long))
    assert lowered_long(read).program.signature() == plan.program.signature()


@given(short_plans())
@laws
def test_every_layer_is_in_one_stage_and_one_row(short):
    plan = lowered(short)
    program, count = plan.program, len(plan.model.layer_blocks)
    assert [layer for stage in program.stages for layer in stage.layers] == list(
        range(count)
    ) * program.chains
    for kind in ("parameter", "gradient", "optimizer"):
        for expert in (False, True):
            rows = [r for r in program.states if r.kind == kind and r.name.endswith(".experts") is expert]
            layers = Counter(layer for row in rows for layer in row.layers)
            wanted = [
                i
                for i, b in enumerate(plan.model.layer_blocks)
                if not expert or "moe" in plan.model.blocks[b].name
            ]
            assert layers == Counter(wanted * program.chains)


@given(short_plans())
@laws
def test_what_is_sent_is_received(short):
    program = lowered(short).program
    sent, received = Counter(), Counter()
    for rank, actions in enumerate(program.lists):
        for action in actions:
            step = {"SEND_F": 1, "SEND_B": -1, "RECV_F": -1, "RECV_B": 1}.get(action.kind)
            if step is not None:
                other = program.stages[action.stage + step].rank
                if action.kind.startswith("SEND"):
                    sent[rank, other, action.kind[-1]] += program.parts.only.message_bytes
                else:
                    received[other, rank, action.kind[-1]] += program.parts.only.message_bytes
    assert sent == received
    by_edge = Counter()
    for edge in program.edges():
        assert edge.version == 0
        assert edge.target in program.lists[edge.target_rank]
        by_edge[edge.source_rank, edge.target_rank, edge.source.kind[-1]] += edge.message_bytes
    assert by_edge == sent


@given(short_plans())
@laws
def test_no_collective_has_a_group_of_one(short):
    program = lowered(short).program
    items = [item for items in program.block_items.values() for item in items]
    collectives = [i for i in items if isinstance(i, Collective)]
    collectives += [c for i in items if not isinstance(i, Collective | Compute) for c in i.overlapped]
    collectives += [c for body in program.bodies.values() for segment in body for c in segment.overlapped]
    for collective in collectives:
        assert program.group_size(collective.axes) > 1
        assert collective.logical_bytes > 0


@given(short_plans())
@laws
def test_a_backward_pass_is_its_two_halves(short):
    """B = I then W, item by item."""
    program = lowered(short).program
    for block in range(len(program.blocks)):
        halves = program.block_items[block, "I"] + program.block_items[block, "W"]
        assert program.block_items[block, "B"] == halves


@pytest.mark.parametrize("name", CONFIGS)
def test_every_operator_runs_forward_and_backward_once(name):
    """The weights of the head are seen to in I."""
    plan = lowered(short_plan(name, {"tp": 2}))
    for index, block in enumerate(plan.model.blocks):
        for kind, phase in (("F", "F"), ("I", "I"), ("W", "W")):
            compute = Counter()
            where = "I" if block.kind == "head" and kind == "W" else kind
            for item in plan.program.block_items[index, where]:
                parts = (item,) if isinstance(item, Compute) else getattr(item, "compute", ())
                compute.update(part.operator.name for part in parts if part.phase == phase)
            boundaries = {"EnterTensor", "LeaveTensor"}
            wanted = [op for op in block.operators if type(op).__name__ not in boundaries]
            assert compute == Counter(op.name for op in wanted if kind != "W" or op.parameters)


@pytest.mark.parametrize(
    ("sharding", "gather", "first", "last"),
    [
        ("none", None, "0F0", "STEP"),
        ("zero1", None, "0GATHER", "STEP"),
        ("zero3", "per-step", "0GATHER", "STEP"),
        ("zero3", "per-layer", "0F0", "STEP"),
    ],
)
def test_where_parameters_are_gathered(sharding, gather, first, last):
    plan = lowered(
        short_plan(
            "dense",
            {"pp": 2, "dp_shard" if sharding != "none" else "dp_replicate": 2},
            sharding=sharding,
            gather=gather,
        ),
        overlap_parameter_gather=True,
    )
    actions = plan.program.lists[0]
    assert (str(actions[0]), str(actions[-1])) == (first, last)


def test_gathers_follow_the_optimizer_where_nothing_hides_them():
    plan = lowered(
        short_plan("dense", {"pp": 2, "dp_shard": 2}, sharding="zero1"), overlap_parameter_gather=False
    )
    assert [str(a) for a in plan.program.lists[1][-2:]] == ["STEP", "1GATHER"]
    assert validate(plan.program, plan.model) == []


@pytest.mark.parametrize("overlap", [True, False])
def test_where_gradients_are_reduced(overlap):
    layout = {"pp": 2, "dp_replicate": 2}
    keys = {"pipeline": {"schedule": "interleaved-1f1b", "virtual_stages": 2}}
    plan = lowered(short_plan("dense", layout, **keys), overlap_gradient_reduction=overlap)
    texts = [str(a) for a in plan.program.lists[0]]
    last = {stage: max(i for i, a in enumerate(texts) if a.startswith(f"{stage}B")) for stage in (0, 2)}
    for stage in (0, 2):
        assert texts.index(f"{stage}REDUCE") == (last[stage] + 1 if overlap else len(texts) - 4 + stage // 2)
    assert validate(plan.program, plan.model) == []


def test_tied_ends_on_two_ranks_add_up_their_gradients():
    plan = lowered(short_plan("moe", {"pp": 4}))
    has = [any(a.kind == "REDUCE_TIED" for a in actions) for actions in plan.program.lists]
    assert has == [True, False, False, True]


def test_tied_ends_on_one_rank_hold_one_table():
    one, two = (lowered(short_plan("moe", {"pp": pp})).program for pp in (1, 2))
    table = 1024 * 64
    assert (
        sum(two.held_elements(rank, "parameter") for rank in (0, 1))
        == one.held_elements(0, "parameter") + table
    )
    assert not any(a.kind == "REDUCE_TIED" for a in one.lists[0])
    assert one.held_elements(0, "parameter") == lowered(short_plan("moe", {})).model.parameters + 24 * 64


def test_a_single_device_exchanges_nothing():
    program = lowered(short_plan("dense", {})).program
    assert program.collectives == {}
    assert {a.kind for a in program.lists[0]} == {"F", "B", "STEP"}
