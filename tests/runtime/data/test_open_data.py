import json

import numpy as np
import pytest
from small_tokenizers import word_tokenizer

from meshwright.errors import InputError
from meshwright.runtime.data.batches import whole_batch
from meshwright.runtime.data.open_data import DataNeeds, open_data
from meshwright.runtime.data.sequence_windows import NO_LABEL
from meshwright.runtime.training.options import TrainingOptions

NEEDS = DataNeeds(vocab=300, seq_len=8, global_batch=4)


@pytest.fixture
def options(tmp_path):
    def made(*data, **changes):
        paths = tuple(str(tmp_path / name) for name in data)
        return TrainingOptions(**{"steps": 10, "data": paths, "cache": tmp_path / "cache"} | changes)

    return made


@pytest.fixture
def book(tmp_path):
    (tmp_path / "book.txt").write_text("a b c a b c a b c c b a. " * 40)
    return "book.txt"


def shard(path, ids, dtype=np.uint16):
    np.save(path, np.array(ids, dtype))


def needs(**changes):
    return DataNeeds(**{"vocab": 300, "seq_len": 8, "global_batch": 4} | changes)


def trained_labels(data, steps):
    batches = [whole_batch(data.training, step) for step in range(steps)]
    return [label for batch in batches for label in batch.labels.ravel().tolist() if label != NO_LABEL]


def test_text_alone_is_enough(options, book):
    data = open_data(options(book), NEEDS)
    assert data.facts["documents"] == 1
    assert data.facts["windows"] + data.facts["held_out_windows"] == -(-(data.facts["tokens"] - 1) // 8)
    assert data.tokenizer.is_file()
    assert whole_batch(data.training, 0).tokens.shape == (4, 8)


def test_training_and_evaluation_share_no_window_and_lose_none(options, tmp_path):
    shard(tmp_path / "a.npy", range(1, 300))
    data = open_data(options("a.npy", held_out=0.2), needs(global_batch=1))
    trained = trained_labels(data, data.facts["windows"])
    batches = [whole_batch(data.held_out, step) for step in range(data.evaluation_batches)]
    held = [label for batch in batches for label in batch.labels.ravel().tolist() if label != NO_LABEL]
    assert sorted([*trained, *held]) == list(range(2, 300))
    assert len(held) == pytest.approx(0.2 * 299, abs=8)


@pytest.mark.parametrize(
    "change",
    [{"seed": 1}, {"held_out": 0.5}, {"mask_document_starts": True}, {"tokenizer": "bytes"}],
    ids=lambda change: next(iter(change)),
)
def test_what_changes_a_batch_changes_the_identity_and_nothing_else_does(options, book, change):
    plain = open_data(options(book), NEEDS).identity
    assert open_data(options(book, steps=99, lr=0.1, keep_last=5), NEEDS).identity == plain
    assert open_data(options(book, **change), NEEDS).identity != plain
    assert open_data(options(book), needs(seq_len=9)).identity != plain
    json.dumps(plain)


def test_the_models_own_tokenizer_comes_before_a_learnt_one_and_after_a_named_one(options, book, tmp_path):
    word_tokenizer(tmp_path / "model", specials=("<unk>", "</s>"))
    word_tokenizer(tmp_path / "other", words=("a", "x"), specials=("<unk>", "<eos>"))
    own = needs(model_folder=tmp_path / "model")
    assert open_data(options(book), own).facts["tokens"] == 12 * 40 + 1
    named = open_data(options(book, tokenizer=str(tmp_path / "other")), own)
    assert named.tokenizer.read_text() == (tmp_path / "other" / "tokenizer.json").read_text()
    learnt = open_data(options(book), needs(model_folder=tmp_path / "absent"))
    assert learnt.facts["tokens"] != named.facts["tokens"]


def test_bytes_need_no_tokenizer(options, book):
    data = open_data(options(book, tokenizer="bytes"), needs(vocab=257))
    assert data.facts["tokens"] == 25 * 40 + 1
    assert data.tokenizer is None
    with pytest.raises(InputError, match="vocabulary >= 257"):
        open_data(options(book, tokenizer="bytes"), needs(vocab=256))


def test_ready_tokens_follow_text(options, book, tmp_path):
    shard(tmp_path / "a.npy", [5, 6, 7], np.uint32)
    data = open_data(options("a.npy", book, tokenizer="bytes", held_out=0.0), needs(global_batch=1))
    corpus = data.training.windows.corpus
    assert corpus.read(25 * 40, 10**6).tolist() == [256, 5, 6, 7]


def test_ids_beyond_the_vocabulary_name_the_first(options, book, tmp_path):
    shard(tmp_path / "a.npy", [1, 2, 300, 301])
    with pytest.raises(InputError) as caught:
        open_data(options("a.npy"), NEEDS)
    (problem,) = caught.value.problems
    assert (problem.value, "token 2 must be below 300" in problem.rule) == (300, True)
    word_tokenizer(tmp_path / "words", specials=("<unk>", "</s>"))
    with pytest.raises(InputError, match="below 4"):
        open_data(options(book, tokenizer=str(tmp_path / "words")), needs(vocab=4))


def test_starts_of_documents_are_masked_where_that_is_asked_for(options, tmp_path):
    shard(tmp_path / "a.npy", [1, 2, 9, 3, 4, 9, 5, 6, 7])
    one = needs(global_batch=1)
    masked = options("a.npy", mask_document_starts=True, end_of_document="9", held_out=0.0)
    assert trained_labels(open_data(masked, one), 1) == [2, 9, 4, 9, 6, 7]
    with pytest.raises(InputError, match="not known"):
        open_data(options("a.npy", mask_document_starts=True), one)


@pytest.mark.parametrize("end", ["300", "-1", "x", "１", "9" * 5000])
def test_a_wrong_end_of_ready_documents_is_refused(options, tmp_path, end):
    shard(tmp_path / "a.npy", range(100))
    with pytest.raises(InputError, match="end_of_document"):
        open_data(options("a.npy", end_of_document=end), NEEDS)


def test_an_end_that_nothing_would_heed_is_refused(options, book):
    for tokenizer in (None, "bytes"):
        with pytest.raises(InputError, match="of its own"):
            open_data(options(book, tokenizer=tokenizer, end_of_document="</s>"), NEEDS)


@pytest.mark.parametrize(
    ("content", "rule"), [("", "hold 0 tokens"), ("x", "none is left for evaluation")], ids=["empty", "short"]
)
def test_too_little_text_is_refused(options, tmp_path, content, rule):
    (tmp_path / "a.txt").write_text(content)
    with pytest.raises(InputError, match=rule):
        open_data(options("a.txt", tokenizer="bytes", evaluate_every=5), NEEDS)


def test_two_tokens_are_enough_to_train(options, tmp_path):
    shard(tmp_path / "a.npy", [3, 4])
    data = open_data(options("a.npy"), NEEDS)
    assert trained_labels(data, 1) == [4] * 4
    assert data.evaluation_batches == 0


def test_nothing_left_to_train_is_refused(options, tmp_path):
    shard(tmp_path / "a.npy", [3, 4])
    with pytest.raises(InputError, match="none is left for training"):
        open_data(options("a.npy", held_out=0.9), NEEDS)


def test_a_sparse_gigabyte_named_as_text_is_refused(options, tmp_path):
    with open(tmp_path / "a.txt", "wb") as stream:
        stream.truncate(2**30)
    with pytest.raises(InputError, match="at byte 0"):
        open_data(options("a.txt"), NEEDS)


def test_without_data_tokens_are_made_up(options):
    data = open_data(options(), NEEDS)
    assert data.facts["source"] == "synthetic"
    assert 0 < data.facts["least_loss"] < np.log(256)
    assert whole_batch(data.held_out, data.evaluation_batches - 1).tokens.shape == (4, 8)


def test_data_of_less_than_a_step_are_remarked_on_and_no_others(options, tmp_path):
    shard(tmp_path / "few.npy", range(14))
    shard(tmp_path / "enough.npy", range(4 * 8 + 1))
    (remark,) = open_data(options("few.npy", held_out=0.0), NEEDS).remarks
    assert remark == (
        "The data are few: 14 tokens, 2 sequences of 8 tokens to train on, and every step takes 4."
    )
    assert open_data(options("enough.npy", held_out=0.0), NEEDS).remarks == ()
    assert open_data(options(), NEEDS).remarks == ()
