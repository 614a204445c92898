"""The state table against an enumeration of every element on every rank."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from lowered_programs import lowered, short_plan, short_plans

from meshwright.program.checks.expected_state_coverage import cover, coverage, padded_shape, units

PLANS = {
    "one device": ("dense", {}, "none"),
    "replicas": ("dense", {"dp_replicate": 3, "tp": 2}, "none"),
    "tensor": ("dense", {"pp": 2, "tp": 4}, "none"),
    "sharded thrice": ("dense", {"dp_shard": 3, "tp": 2}, "zero3"),
    "sharded over two axes": ("gpt", {"dp_shard": 2, "cp": 3, "tp": 2, "dp_replicate": 2}, "zero2"),
    "tied, apart": ("moe", {"pp": 2, "dp_shard": 2}, "zero1"),
    "tied, together": ("moe", {"dp_shard": 2, "tp": 2}, "zero3"),
    "further tokens, apart": ("further", {"pp": 2, "dp_shard": 2, "ep": 2}, "zero1"),
    "further tokens, together": ("further", {"dp_shard": 2, "tp": 2}, "zero3"),
    "experts": ("moe", {"dp_shard": 4, "tp": 2, "ep": 4, "etp": 2}, "zero3"),
    "experts over replicas": ("moe", {"dp_shard": 3, "dp_replicate": 2, "ep": 2}, "zero1"),
}


def plan(name, layout, sharding):
    return lowered(short_plan(name, layout, sharding=sharding, workload={"global_batch": 12}))


def chunk(length, parts, index):
    """Where a piece of ⌈length/parts⌉ lies, cut off at the end."""
    step = -(-length // parts)
    return slice(min(index * step, length), min((index + 1) * step, length))


def held(parameter, shape, place, sizes, expert):
    """Flat indices into the padded tensor of what one rank has of it."""
    parts = [slice(None)] * len(shape)
    for axis, dim in (("ep", parameter.ep_dim), ("etp" if expert else "tp", parameter.tp_dim)):
        if dim is not None:
            parts[dim] = chunk(shape[dim], sizes[axis], place[axis])
    return np.arange(np.prod(shape)).reshape(shape)[tuple(parts)].ravel()


def owners(lowered_plan, unit, row):
    """How many ranks of the unit's stage hold each element of each padded tensor, by enumeration."""
    program = lowered_plan.program
    grid = program.parts.only.expert_grid if unit.expert else program.parts.only.grid
    shapes = [padded_shape(parameter, program, program.parts.only) for parameter in unit.parameters]
    counts = [np.zeros(np.prod(shape), dtype=int) for shape in shapes]
    cut = [axis for axis in row.layout if "shard" in axis or axis == "cp"]
    stage_rank = program.stages[unit.stage].rank
    for place in (grid.coordinates(rank) for rank in range(grid.ranks)):
        if place["pp"] != stage_rank:
            continue
        index = 0
        for axis in cut:
            index = index * grid.sizes[axis] + place[axis]
        local = [
            (number, flat)
            for number, (parameter, shape) in enumerate(zip(unit.parameters, shapes, strict=True))
            for flat in held(parameter, shape, place, grid.sizes, unit.expert)
        ]
        for number, flat in local[index * row.elements : (index + 1) * row.elements]:
            counts[number][flat] += 1
    return counts


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("name", PLANS)
def test_every_element_is_held_by_as_many_ranks_as_the_layout_says(name):
    made = plan(*PLANS[name])
    program = made.program
    rows = {(row.stage, row.name, row.kind): row for row in program.states}
    stage_ranks = program.parts.ranks // program.pipeline_ranks
    checked = 0
    for unit, kind in product(units(program, made.model), ("parameter", "gradient", "optimizer")):
        row = rows[unit.stage, unit.name, kind]
        sizes = (program.parts.only.expert_grid if unit.expert else program.parts.only.grid).sizes
        shards = np.prod([sizes[axis] for axis in row.layout if axis not in ("tp", "ep", "etp")])
        for parameter, counts in zip(unit.parameters, owners(made, unit, row), strict=True):
            dims = {"ep": parameter.ep_dim, "etp" if unit.expert else "tp": parameter.tp_dim}
            cuts = np.prod([sizes[axis] for axis, dim in dims.items() if dim is not None])
            assert set(counts) == {stage_ranks // (shards * cuts)}, (parameter.name, kind)
            checked += 1
    assert checked


@given(short_plans())
@settings(max_examples=30, deadline=None)
def test_elements_copies_and_padding_add_up(short):
    made = lowered(short)
    program = made.program
    for row in coverage(program, made.model):
        (entry,) = [
            e
            for e in program.states
            if (e.stage, e.name, e.kind) == (row.unit.stage, row.unit.name, row.kind)
        ]
        assert entry.elements == row.local
        on_all_ranks = entry.repeat * entry.elements * program.group_size(entry.layout)
        assert on_all_ranks == row.elements + row.copies + row.padding
        assert row.padding >= 0


@given(short_plans())
@settings(max_examples=30, deadline=None)
def test_the_whole_model_is_covered(short):
    """Elements of all units = the model's parameters for each chain, a tied table twice where two ranks hold it."""
    made = lowered(short)
    rows = [row for row in coverage(made.program, made.model) if row.kind == "parameter"]
    arch = made.model.architecture
    twice = arch.tied_embeddings and len(made.program.end_ranks) == 2
    table = arch.vocab * arch.hidden if twice else 0
    assert sum(row.elements for row in rows) == made.program.chains * made.model.parameters + table


def test_padding_by_hand():
    """1000 words become 1024 = 4·(2·128); a flat buffer is rounded up to a multiple of 3 on each of 2 tp ranks."""
    made = plan("dense", {"dp_shard": 3, "tp": 2}, "zero1")
    embed, layer = list(units(made.program, made.model))[:2]
    assert cover(made.program, embed, "parameter", sharded=False).padding == 24 * 64
    local = 1024 // 2 * 64
    assert cover(made.program, embed, "optimizer", sharded=True).padding == 24 * 64 + 2 * (-local % 3)
    cut = 64 * 64 + 2 * 32 * 64 + 64 * 64 + 3 * 64 * 192
    local = cut // 2 + 2 * 64
    row = cover(made.program, layer, "optimizer", sharded=True)
    assert row.local == -(-local // 3)
    assert row.copies == 8 * 2 * 64
    assert row.padding == 8 * 2 * (-local % 3)
