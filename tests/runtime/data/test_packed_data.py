"""Data whose documents are kept apart: made up, or of files."""

import numpy as np
import pytest

from meshwright.errors import InputError
from meshwright.runtime.data.batches import whole_batch
from meshwright.runtime.data.open_data import DataNeeds, open_data
from meshwright.runtime.data.sequence_windows import NO_LABEL
from meshwright.runtime.data.synthetic_data import SyntheticBatches
from meshwright.runtime.training.options import TrainingOptions
from meshwright.workload.packed_documents import Documents

SEQ_LEN = 24


def made_up(documents=None):
    size = {"vocab": 50, "seq_len": SEQ_LEN, "global_batch": 8, "seed": 3}
    return whole_batch(SyntheticBatches(**size, documents=documents), 0)


def test_made_up_documents_lie_in_turn_and_are_not_predicted_from_each_other():
    batch, plain = made_up(Documents((5, 2, 9))), made_up()
    assert (batch.tokens == plain.tokens).all()
    new = batch.begins == np.arange(SEQ_LEN)
    assert (batch.labels[:, :-1][new[:, 1:]] == NO_LABEL).all()
    kept = batch.labels != NO_LABEL
    assert (batch.labels[kept] == plain.labels[kept]).all()
    whole = [np.unique(row, return_counts=True)[1][1:-1] for row in batch.begins]
    assert {int(length) for row in whole for length in row} == {5, 2, 9}
    assert len({tuple(row) for row in batch.begins.tolist()}) > 1


def test_made_up_documents_that_fill_sequences_are_not_cut():
    batch = made_up(Documents((SEQ_LEN // 2,)))
    assert (batch.begins == np.repeat([0, SEQ_LEN // 2], SEQ_LEN // 2)).all()
    assert (batch.labels[:, [SEQ_LEN // 2 - 1, -1]] == NO_LABEL).all()


def opened(tmp_path, documents, **changes):
    np.save(tmp_path / "a.npy", np.array([1, 2, 9, 3, 4, 9, 5, 6, 7], np.uint16))
    given = {"steps": 1, "data": (str(tmp_path / "a.npy"),), "cache": tmp_path, "held_out": 0.0}
    needs = DataNeeds(vocab=10, seq_len=8, global_batch=1, documents=documents)
    return open_data(TrainingOptions(**given | changes), needs)


def test_documents_of_files_are_parted_where_the_plan_says_so(tmp_path):
    batch = whole_batch(opened(tmp_path, Documents((3,)), end_of_document="9").training, 0)
    assert batch.begins.tolist() == [[0, 0, 0, 3, 3, 3, 6, 6]]
    assert batch.labels.tolist() == [[2, 9, NO_LABEL, 4, 9, NO_LABEL, 6, 7]]
    assert whole_batch(opened(tmp_path, None, end_of_document="9").training, 0).begins is None


def test_data_that_do_not_say_where_documents_end_are_refused(tmp_path):
    with pytest.raises(InputError) as caught:
        opened(tmp_path, Documents((3,)), mask_document_starts=True)
    assert [problem.field for problem in caught.value.problems] == [
        "mask_document_starts",
        "workload.documents",
    ]


def test_a_run_with_documents_apart_is_another_run(tmp_path):
    apart, plain = (opened(tmp_path, d, end_of_document="9").identity for d in (Documents((3,)), None))
    assert apart.keys() - plain.keys() == {"documents"}
