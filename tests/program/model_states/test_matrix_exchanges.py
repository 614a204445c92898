"""Exchanges of Muon's step: every matrix once over all ranks, and the Program's for the first of them."""

from collections import Counter

import pytest
from covering_plans import Proven

from meshwright.program.model_states.hidden_matrices import stage_matrices, stepped
from meshwright.program.model_states.matrix_exchanges import matrix_units, step_exchanges


def muon(tensor="blockwise", **of):
    return Proven("llama", optimizer=(("name", "muon"), ("tensor", tensor)), **of).lowered()[0]


def exchanged(program, parts=(0, 0)):
    """Exchanges of the first stage: (kind, axes, bytes) and how often."""
    blocks = [program.blocks[index] for index in program.stages[0].blocks]
    units = matrix_units(blocks, program.parts.only.mode)
    items = step_exchanges(units, program.parts.only.sharding, program.parts.only.shape, program.stack, parts)
    return Counter((item.kind, item.axes, int(item.logical_bytes)) for item in items)


@pytest.mark.parametrize("ranks", [2, 3, 5, 64])
def test_ranks_own_every_matrix_once(ranks):
    program = muon(dp_shard=ranks, sharding="zero1")
    matrices = stage_matrices((program.blocks[i] for i in program.stages[0].blocks), program.stack)
    total = Counter()
    for part in range(ranks):
        owned = stepped(matrices, "zero1", program.parts.only.shape, program.stack, (part, 0))
        total.update({matrix: int(number) for matrix, number in owned.items()})
    assert total == matrices


def test_blocks_by_themselves_exchange_nothing():
    assert not exchanged(muon(tp=2))
    assert (0, "STEP") not in muon(tp=2).collectives


def test_what_is_gathered_over_tp_is_every_matrix_that_tp_cuts():
    hidden, layers = 48, 3
    found = exchanged(muon("duplicated", tp=2))
    whole = sum(size * number for (_, _, size), number in found.items())
    assert {(kind, axes) for kind, axes, _ in found} == {("all-gather", ("tp",))}
    assert sum(found.values()) == 7 * layers
    program = muon("duplicated", tp=2)
    elements = sum(p.elements for i in program.stages[0].blocks for p in _cut(program.blocks[i]))
    assert whole == 2 * elements
    assert elements % hidden == 0


def _cut(block):
    parameters = [p for op in block.operators for p in op.parameters]
    return [p for p in parameters if block.kind == "layer" and p.tp_dim is not None and len(p.shape) == 2]


def test_gram_matrices_are_summed_in_every_step():
    found = exchanged(muon("distributed", tp=2))
    assert {(kind, axes) for kind, axes, _ in found} == {("all-reduce", ("tp",))}
    assert sum(found.values()) == 7 * 3 * 5


def test_parts_of_matrices_are_gathered_unit_by_unit():
    by_layer = exchanged(muon(dp_shard=2, sharding="zero3", gather="per-layer"))
    at_once = exchanged(muon(dp_shard=2, sharding="zero3", gather="per-step"))
    assert (sum(by_layer.values()), sum(at_once.values())) == (3, 1)
    moved = [sum(size * number for (*_, size), number in found.items()) for found in (by_layer, at_once)]
    assert moved[0] == moved[1]


def test_the_program_has_what_the_first_ranks_exchange():
    program = muon("duplicated", tp=2, dp_shard=2, sharding="zero1")
    declared = Counter((c.kind, c.axes, int(c.logical_bytes)) for c in program.collectives[0, "STEP"])
    first, second = exchanged(program), exchanged(program, (1, 0))
    assert declared == first
    assert sum(first.values()) + sum(second.values()) == 7 * 3
    assert sum(first.values()) >= sum(second.values())
