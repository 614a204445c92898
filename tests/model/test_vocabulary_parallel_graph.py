"""A model with a spread vocabulary has the same operators and parameters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.model.load import load_model
from meshwright.model.operators.operator_types import Embedding, Linear, Loss, Norm
from meshwright.model.transforms.vocabulary_parallel import with_vocabulary_parallel

NAMES = ("gpt-3-175b", "llama-3.1-70b", "gemma-2-9b", "deepseek-v3", "bloom-176b", "mixtral-8x7b")


def operators(blocks):
    return [op for block in blocks for op in block.operators]


@given(st.sampled_from(NAMES))
def test_nothing_is_lost_and_nothing_is_there_twice(name):
    model = load_model(name)
    spread = with_vocabulary_parallel(model)
    before = {p for op in operators(model.blocks) for p in op.parameters}
    after = [p for op in operators(spread.blocks) for p in op.parameters]
    assert set(after) == before
    assert sum(p.elements for p in after) == sum(b.parameters for b in model.blocks)
    assert spread.chain == model.chain
    kinds = [type(op) for op in operators([model.embed, model.head]) if not isinstance(op, Embedding)]
    kept = [spread.embed, spread.head, *(spread.blocks[b] for b in spread.vocabulary)]
    assert sorted(map(str, kinds)) == sorted(
        str(type(op)) for op in operators(kept) if not isinstance(op, Embedding)
    )


@pytest.mark.parametrize("name", NAMES)
def test_shares_have_the_tables_and_the_loss_and_the_ends_the_norms(name):
    spread = with_vocabulary_parallel(load_model(name))
    rows, head = (spread.blocks[block] for block in spread.vocabulary)
    assert [type(op) for op in rows.operators] == [Embedding]
    assert all(p.vocab_dim == 0 for op in operators([rows, head]) for p in op.parameters)
    assert {Linear, Loss} <= {type(op) for op in head.operators}
    assert not any(isinstance(op, Norm) for op in head.operators)
    assert all(p.vocab_dim is None for op in operators([spread.embed, spread.head]) for p in op.parameters)
    assert isinstance(spread.head.operators[0], Norm)


def test_learned_positions_stay_in_the_first_stage():
    model = load_model("gpt-3-175b")
    (positions,) = (op for op in with_vocabulary_parallel(model).embed.operators if isinstance(op, Embedding))
    assert [p.shape for p in positions.parameters] == [(2048, 12288)]


def test_a_table_of_both_ends_is_not_summed_between_them():
    model = load_model("gemma-2-9b")
    assert model.tied_gradients
    assert not with_vocabulary_parallel(model).tied_gradients
