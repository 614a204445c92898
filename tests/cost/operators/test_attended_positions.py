"""What packed documents attend to, against documents that are laid out one by one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.cost.operators.attended_positions import (
    mean_attended_positions,
    mean_attended_positions_of_rows,
)
from meshwright.errors import InputError
from meshwright.model.operators.operator_types import Attention
from meshwright.runtime.data.synthetic_data import document_begins
from meshwright.workload.packed_documents import Documents
from meshwright.workload.workload import MAX_DOCUMENTS, MAX_SEQ_LEN, Workload

LENGTHS = st.lists(st.integers(1, 300), min_size=1, max_size=8).map(tuple)
WINDOWS = st.sampled_from((None, 1, 7, 40, 500))


def attention(window):
    return Attention(name="attention", heads=1, kv_heads=1, qk_dim=1, v_dim=1, window=window, kv_width=2)


def laid_out(documents, seq_len, window, first=0):
    """Mean positions that rows see, half of their own, over all places where a cut may fall."""
    step = seq_len if documents.uncut(seq_len) else 1
    row, sums = np.arange(seq_len), []
    for place in range(0, documents.total, step):
        before = row - document_begins(documents, seq_len, place)
        whole = before + 0.5 if window is None else np.where(before < window, before + 0.5, window)
        sums.append(whole[first:].mean())
    return np.mean(sums)


@settings(deadline=None, max_examples=60)
@given(lengths=LENGTHS, seq_len=st.integers(1, 200), window=WINDOWS, part=st.floats(0, 0.9))
def test_rows_attend_to_what_documents_that_are_laid_out_leave_them(lengths, seq_len, window, part):
    documents, first = Documents(lengths), int(part * seq_len)
    found = mean_attended_positions_of_rows(documents, seq_len, window, first)
    assert found == pytest.approx(laid_out(documents, seq_len, window, first), abs=0.51, rel=0.01)


def test_whole_documents_attend_to_half_the_mean_of_their_squares():
    lengths = (512, 512, 3072)
    squares = sum(length**2 / 2 for length in lengths)
    assert mean_attended_positions_of_rows(Documents(lengths), 4096, None) == squares / 4096
    assert mean_attended_positions_of_rows(Documents(lengths), 8192, None) == squares / 4096


def test_one_document_in_a_sequence_is_a_sequence_that_is_not_packed():
    for window in (None, 100, 5000):
        op = attention(window)
        whole = mean_attended_positions(op, 4096, True, None)
        assert mean_attended_positions(op, 4096, True, Documents((4096,))) == pytest.approx(whole)
        endless = mean_attended_positions(op, 4096, True, Documents((MAX_SEQ_LEN,)))
        assert endless == pytest.approx(whole, rel=1e-4)


def test_without_the_causal_discount_a_token_counts_all_of_its_document():
    lengths = (512, 512, 3072)
    mean = sum(length**2 for length in lengths) / 4096
    assert mean_attended_positions(attention(None), 4096, False, Documents(lengths)) == mean
    assert mean_attended_positions(attention(100), 4096, False, Documents(lengths)) == 200
    assert mean_attended_positions(attention(None), 4096, False, Documents((4096,))) == 4096


@given(lengths=LENGTHS, seq_len=st.integers(1, 500))
def test_documents_attend_to_no_more_than_a_whole_sequence(lengths, seq_len):
    documents = Documents(lengths)
    assert 0 < mean_attended_positions_of_rows(documents, seq_len, None) <= seq_len / 2 * (1 + 1e-9)
    assert mean_attended_positions_of_rows(documents, seq_len, None) <= max(lengths) / 2 * (1 + 1e-9)


def test_rows_may_begin_at_as_many_places_as_there_are_plans():
    documents, first = Documents((300, 50)), np.array([0.0, 500.0, 750.0])
    found = mean_attended_positions_of_rows(documents, 1000, None, first)
    assert found.tolist() == [mean_attended_positions_of_rows(documents, 1000, None, row) for row in first]


@pytest.mark.parametrize(
    ("lengths", "value"),
    [
        ((), 0),
        ((0,), 0),
        ((5, -1), -1),
        ((MAX_SEQ_LEN + 1,), MAX_SEQ_LEN + 1),
        ((1,) * (MAX_DOCUMENTS + 1), 4097),
    ],
)
def test_lengths_that_are_none_are_refused(lengths, value):
    with pytest.raises(InputError) as caught:
        Workload(seq_len=8, global_batch=1, documents=Documents(lengths))
    (problem,) = caught.value.problems
    assert (problem.field, problem.value) == ("workload.documents", value)
