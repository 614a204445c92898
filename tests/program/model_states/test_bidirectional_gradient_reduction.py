"""Layers that two pipeline ranks hold: who sums up what with whom, and how many bytes that is."""

from math import ceil

import pytest
from lowered_programs import lowered, short_plan

from meshwright.program.model_states.state_elements import block_elements
from meshwright.schedules.action import Action

RANKS, SHARDS = 4, 2
DUALPIPE = {"schedule": "dualpipe", "virtual_stages": 2}
SHARDINGS = [
    ("none", None),
    ("zero1", None),
    ("zero2", None),
    ("zero3", "per-layer"),
    ("zero3", "per-micro-batch"),
    ("zero3", "per-step"),
]


def twice(name="dense", sharding="none", gather=None, **degrees):
    axis = "dp_replicate" if sharding == "none" else "dp_shard"
    layout = {"pp": RANKS, axis: SHARDS} | degrees
    return lowered(
        short_plan(name, layout, sharding=sharding, gather=gather, pipeline=DUALPIPE, stack="generic")
    )


def test_ranks_that_mirror_each_other_hold_the_same_layers():
    program = twice().program
    assert program.mirrors == ((0, 3), (1, 2))
    held = [
        sorted(layer for stage in program.stages_of(rank) for layer in stage.layers) for rank in range(RANKS)
    ]
    assert held == [[0, 1, 6, 7], [2, 3, 4, 5], [2, 3, 4, 5], [0, 1, 6, 7]]
    assert [[stage.index for stage in program.stages_of(rank)] for rank in range(RANKS)] == [
        [0, 7],
        [1, 6],
        [5, 2],
        [4, 3],
    ]


@pytest.mark.parametrize("name", ["dense", "moe"])
@pytest.mark.parametrize("kind", ["parameter", "gradient", "optimizer"])
def test_all_states_are_held_twice(name, kind):
    once = lowered(short_plan(name, {"dp_replicate": SHARDS}, stack="generic")).program
    program = twice(name).program
    assert sum(program.held_elements(rank, kind) for rank in range(RANKS)) == 2 * once.held_elements(0, kind)


@pytest.mark.parametrize("name", ["dense", "moe"])
@pytest.mark.parametrize(("sharding", "gather"), SHARDINGS)
def test_shards_of_every_gradient_are_summed_up_once(name, sharding, gather):
    """Each stage with its copy: gradient bytes · ⌈elements / shards⌉ of every unit that is reduced by itself."""
    plan = twice(name, sharding, gather)
    program = plan.program
    elements = block_elements(program.blocks, program.parts.only.shape, ends_together=True)
    parts = SHARDS if sharding != "none" else 1
    for stage in program.stages:
        found = program.collectives[stage.index, "REDUCE_MIRRORED"]
        assert {(c.kind, c.axes) for c in found} == {("all-reduce", ("mirrored",))}
        blocks = [elements[block] for block in stage.blocks]
        dense, expert = ([getattr(of, mesh) for of in blocks] for mesh in ("dense", "expert"))
        shard = sum(ceil(size / parts) for size in (dense if gather == "per-layer" else [sum(dense)]))
        of_experts = program.parts.only.shape.expert_shard
        shard += sum(ceil(size / of_experts) for size in (expert if gather == "per-layer" else [sum(expert)]))
        assert sum(c.logical_bytes for c in found) == program.stack.gradient_communication_bytes * shard
        assert program.group_size(("mirrored",)) == 2


@pytest.mark.parametrize(("sharding", "gather"), SHARDINGS)
def test_both_ranks_sum_up_in_one_order_behind_their_reductions(sharding, gather):
    program = twice("moe", sharding, gather).program
    for a, b in program.mirrors:
        orders = []
        for rank in (a, b):
            actions = program.lists[rank]
            at = [i for i, action in enumerate(actions) if action.kind == "REDUCE_MIRRORED"]
            assert at[0] > max(i for i, action in enumerate(actions) if action.kind in ("W", "REDUCE"))
            assert at[-1] < actions.index(Action("NORM"))
            orders.append([program.ways.position(actions[i].stage) for i in at])
        assert orders[0] == orders[1] == sorted({a, b})


def test_a_tied_table_needs_no_exchange_of_its_own():
    """A rank with the embedding of one chain has the head of the other: one table, summed up with its mirror's."""
    program = twice("moe").program
    assert not any(action.kind == "REDUCE_TIED" for actions in program.lists for action in actions)
    for rank in (0, 3):
        blocks = {program.blocks[b].kind for stage in program.stages_of(rank) for b in stage.blocks}
        assert blocks == {"embed", "layer", "head"}
    tables = [row for row in program.states if row.name == "embed" and row.kind == "gradient"]
    assert [row.stage for row in tables] == [0, 4]


def test_the_table_is_reduced_behind_the_last_pass_of_the_other_chains_head():
    program = twice("moe").program
    for rank, embed, head in ((0, 0, 7), (3, 4, 3)):
        actions = program.lists[rank]
        last = max(i for i, action in enumerate(actions) if (action.kind, action.stage) == ("W", head))
        assert actions.index(Action("REDUCE", embed)) > last


def test_one_chain_sums_up_nothing_with_a_mirror():
    program = lowered(short_plan("dense", {"pp": RANKS})).program
    assert not [key for key in program.collectives if key[1] == "REDUCE_MIRRORED"]
