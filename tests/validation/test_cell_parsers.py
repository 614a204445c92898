"""Cells of a table: lists of stages and orders of ranks, as they are written and read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.validation.cell_parsers import rank_order, stage_layers, stage_layers_text


@given(st.lists(st.integers(0, 9999), min_size=1, max_size=60))
def test_layers_of_stages_are_read_as_they_are_written(counts):
    text = stage_layers_text(counts)
    assert stage_layers(text) == tuple(counts)
    assert len(text) <= len(" ".join(map(str, counts)))


def test_equal_stages_are_written_once():
    assert stage_layers_text([3, 4, 4, 4, 3]) == "3 4*3 3"


@pytest.mark.parametrize(
    "text", ["", "3,4", "4*0", "-1 4", "4*", "1e3", "1*99999", "4 " * 20000, "99999", "4*6*2"]
)
def test_what_is_no_list_of_stages(text):
    with pytest.raises(ValueError, match="must be layers"):
        stage_layers(text)


@pytest.mark.parametrize(
    "text", ["tp", "tp cp dp_shard dp_replicate tp", "tp cp dp_shard dp_replicate pp ep"]
)
def test_what_is_no_order_of_ranks(text):
    with pytest.raises(ValueError, match="once"):
        rank_order(text)
    assert rank_order("pp, tp cp dp_shard,dp_replicate")[0] == "pp"
