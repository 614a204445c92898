import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.runtime.data.corpus import Corpus
from meshwright.runtime.data.sequence_windows import NO_LABEL, Windows

END = 9


def corpus(*shards):
    return Corpus(tuple(np.array(shard, np.uint16) for shard in shards), ("",) * len(shards))


def all_rows(windows):
    return windows.rows(np.arange(windows.count))


@settings(deadline=None)
@given(
    shards=st.lists(st.lists(st.integers(0, 20), min_size=1, max_size=30), min_size=1),
    seq_len=st.integers(1, 12),
)
def test_each_token_but_the_first_is_predicted_once_from_the_one_before_it(shards, seq_len):
    tokens = [token for shard in shards for token in shard]
    tokens_GL, labels_GL, *_ = all_rows(Windows(corpus(*shards), seq_len))
    predicted = labels_GL != NO_LABEL
    assert labels_GL[predicted].tolist() == tokens[1:]
    assert tokens_GL[predicted].tolist() == tokens[:-1]
    assert tokens_GL.shape == labels_GL.shape == (-(-(len(tokens) - 1) // seq_len), seq_len)


def test_only_the_end_of_the_last_window_is_filled_up():
    tokens_GL, labels_GL, *_ = all_rows(Windows(corpus([1, 2, 3], [4, 5, 6]), 4, fill=END))
    assert tokens_GL.tolist() == [[1, 2, 3, 4], [5, END, END, END]]
    assert labels_GL.tolist() == [[2, 3, 4, 5], [6, *[NO_LABEL] * 3]]


def test_the_start_of_a_document_is_predicted_unless_it_is_masked():
    documents = corpus([1, 2, END, 3, END, 4, END])
    assert all_rows(Windows(documents, 6)).labels.tolist() == [[2, END, 3, END, 4, END]]
    masked = all_rows(Windows(documents, 6, unpredicted=END)).labels.tolist()
    assert masked == [[2, END, NO_LABEL, END, NO_LABEL, END]]


def test_documents_apart_begin_behind_the_end_of_another_and_are_not_predicted_from_it():
    documents = corpus([1, 2, END, 3, END, END, 4, 5])
    apart = all_rows(Windows(documents, 4, fill=END, parted=END))
    assert apart.tokens.tolist() == [[1, 2, END, 3], [END, END, 4, END]]
    assert apart.begins.tolist() == [[0, 0, 0, 3], [0, 1, 2, 2]]
    assert apart.labels.tolist() == [[2, END, NO_LABEL, END], [NO_LABEL, NO_LABEL, 5, NO_LABEL]]
    assert all_rows(Windows(documents, 4, fill=END)).begins is None


def test_a_negative_number_is_a_row_that_predicts_nothing():
    tokens_GL, labels_GL, *_ = Windows(corpus([1, 2, 3]), 2, fill=7).rows(np.array([-1, 0]))
    assert tokens_GL.tolist() == [[7, 7], [1, 2]]
    assert labels_GL.tolist() == [[NO_LABEL] * 2, [2, 3]]


def test_rows_are_owned_by_who_asks():
    windows = Windows(corpus([1, 2, 3]), 2)
    all_rows(windows).tokens[:] = 0
    assert all_rows(windows).tokens.tolist() == [[1, 2]]
