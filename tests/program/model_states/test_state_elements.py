import numpy as np
import pytest
from lowered_programs import model

from meshwright.model.operators.operator_types import Parameter
from meshwright.program.local_shape import LocalShape
from meshwright.program.model_states.state_elements import (
    block_elements,
    embedding_names,
    local_elements,
    parameter_elements,
)


def shape(**sizes):
    base = {"micro_batch": 1, "seq_len": 128, "cp": 1, "tp": 1, "ep": 1, "etp": 1}
    return LocalShape(**base | sizes)


@pytest.mark.parametrize(
    ("parameter", "sizes", "expert", "elements"),
    [
        (Parameter("w", (10, 3), tp_dim=0), {"tp": 4}, False, 3 * 3),
        (Parameter("w", (10, 3), tp_dim=1), {"tp": 4}, False, 10 * 1),
        (Parameter("w", (10, 3)), {"tp": 4}, False, 30),
        (Parameter("w", (5, 10, 3), tp_dim=1, ep_dim=0), {"tp": 9, "ep": 2, "etp": 4}, True, 3 * 3 * 3),
        (Parameter("v", (1000, 4), tp_dim=0, vocab_dim=0), {"tp": 2, "vocab_multiple": 128}, False, 512 * 4),
        (Parameter("v", (1000, 4), tp_dim=0, vocab_dim=0), {"tp": 3, "vocab_multiple": 1}, False, 334 * 4),
    ],
)
def test_uneven_dims_are_rounded_up(parameter, sizes, expert, elements):
    assert parameter_elements(parameter, shape(**sizes), expert=expert) == elements


def test_arrays_of_shapes_give_the_numbers_of_each():
    block = model("moe").blocks[2]
    rows = [{"tp": 1, "ep": 1, "etp": 1}, {"tp": 2, "ep": 4, "etp": 1}, {"tp": 4, "ep": 2, "etp": 2}]
    together = shape(**{axis: np.array([row[axis] for row in rows]) for axis in rows[0]})
    found = local_elements(block, together)
    for index, row in enumerate(rows):
        alone = local_elements(block, shape(**row))
        for field in ("dense", "expert", "whole"):
            value = np.broadcast_to(getattr(found, field), 3)[index]
            assert value == getattr(alone, field)


def test_one_device_holds_the_model():
    graph = model("dense")
    elements = block_elements(graph.blocks, shape(), ends_together=True)
    held = sum((elements[i].dense + elements[i].expert) * repeat for i, repeat in graph.chain)
    assert held == graph.parameters


@pytest.mark.parametrize("name", ["moe", "gpt"])
def test_a_tied_table_counts_once_where_both_ends_are_together(name):
    graph = model(name)
    together, apart = (block_elements(graph.blocks, shape(), ends_together=t) for t in (True, False))
    head = len(graph.blocks) - 1
    assert apart[head].dense - together[head].dense == 1000 * 64
    assert together[0] == apart[0]
    assert "embed_tokens.weight" in embedding_names(graph.blocks)


def test_a_head_of_its_own_counts_wherever_it_is():
    graph = model("dense")
    assert block_elements(graph.blocks, shape(), ends_together=True) == block_elements(
        graph.blocks, shape(), ends_together=False
    )
