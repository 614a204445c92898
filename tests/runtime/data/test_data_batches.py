import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.runtime.data.batches import HeldOutBatches, TrainingBatches, whole_batch
from meshwright.runtime.data.corpus import Corpus
from meshwright.runtime.data.epoch_order import EpochOrder, evenly_spaced, permutation
from meshwright.runtime.data.sequence_windows import NO_LABEL, Windows
from meshwright.runtime.data.synthetic_data import HELD_OUT, SyntheticBatches

SEQ_LEN = 4


def windows_of(count):
    """Windows that say their number: the tokens count up."""
    tokens = np.arange(count * SEQ_LEN + 1, dtype=np.uint16)
    return Windows(Corpus((tokens,), ("",)), SEQ_LEN)


def training(count=10, global_batch=4, seed=0):
    windows = windows_of(count)
    return TrainingBatches(windows, EpochOrder(np.arange(windows.count), seed), global_batch)


def synthetic(seed=0, **changes):
    return SyntheticBatches(**{"vocab": 50, "seq_len": SEQ_LEN, "global_batch": 4, "seed": seed} | changes)


SOURCES = {"files": training, "synthetic": synthetic}


def numbers(batch):
    return (batch.tokens[:, 0] // SEQ_LEN).tolist()


@pytest.mark.parametrize("source", SOURCES)
@settings(deadline=None, max_examples=40)
@given(step=st.integers(0, 10**6), cuts=st.permutations(range(4)), ranks=st.integers(1, 4))
def test_rows_of_ranks_in_any_layout_are_the_rows_of_the_batch(source, step, cuts, ranks):
    whole = whole_batch(SOURCES[source](), step)
    for rank in range(ranks):
        part = SOURCES[source]().rows(step, cuts[rank::ranks])
        assert (part.tokens == whole.tokens[cuts[rank::ranks]]).all()
        assert (part.labels == whole.labels[cuts[rank::ranks]]).all()


@pytest.mark.parametrize("source", SOURCES)
def test_a_resumed_run_goes_on_as_if_it_had_not_stopped(source):
    going = SOURCES[source](seed=5)
    steps = [whole_batch(going, step) for step in range(9)]
    for step in (8, 3, 0):
        resumed = whole_batch(SOURCES[source](seed=5), step)
        assert (resumed.tokens == steps[step].tokens).all()
        assert (resumed.labels == steps[step].labels).all()


@pytest.mark.parametrize("source", SOURCES)
def test_the_seed_and_the_step_choose_the_batch(source):
    batches = [whole_batch(SOURCES[source](seed=seed), step) for seed in (0, 1) for step in (0, 1)]
    assert len({batch.tokens.tobytes() for batch in batches}) == 4


@settings(deadline=None)
@given(
    count=st.integers(1, 40),
    global_batch=st.integers(1, 9),
    seed=st.integers(0, 2**32 - 1),
    epochs=st.integers(1, 3),
)
def test_in_an_epoch_each_window_comes_once_whatever_the_batch(count, global_batch, seed, epochs):
    batches = training(count, global_batch, seed)
    steps = -(-count * epochs // global_batch)
    seen = [number for step in range(steps) for number in numbers(whole_batch(batches, step))]
    for epoch in range(epochs):
        assert sorted(seen[epoch * count : (epoch + 1) * count]) == list(range(count))


def test_another_size_of_batch_takes_the_same_sequences_in_the_same_order():
    small = [number for step in range(12) for number in numbers(whole_batch(training(global_batch=2), step))]
    large = [number for step in range(4) for number in numbers(whole_batch(training(global_batch=6), step))]
    assert small == large


def test_the_order_of_an_epoch_is_what_it_has_always_been():
    """It must not change with a release of numpy or of ours: a run that is resumed would see windows twice."""
    assert permutation(10, seed=0, epoch=0).tolist() == [0, 8, 9, 3, 7, 5, 1, 2, 6, 4]
    assert permutation(10, seed=7, epoch=3).tolist() == [7, 1, 9, 6, 0, 4, 2, 8, 3, 5]


def test_orders_of_epochs_and_seeds_differ():
    orders = {permutation(50, seed, epoch).tobytes() for seed in range(4) for epoch in range(4)}
    assert len(orders) == 16


def test_every_window_is_equally_often_first():
    firsts = np.bincount([permutation(5, seed, 0)[0] for seed in range(2000)], minlength=5)
    assert abs(firsts - 400).max() < 100  # five standard deviations are 89


@given(count=st.integers(1, 500), share=st.floats(0, 1))
def test_what_is_held_out_is_spread_evenly(count, share):
    held = evenly_spaced(count, round(share * count))
    assert len(set(held.tolist())) == len(held) == round(share * count)
    assert all(0 <= number < count for number in held)
    gaps = np.diff(held)
    assert len(gaps) == 0 or gaps.max() - gaps.min() <= 1


@settings(deadline=None)
@given(count=st.integers(0, 20), global_batch=st.integers(1, 6))
def test_an_evaluation_shows_each_held_out_window_once(count, global_batch):
    held = np.arange(count) * 2
    batches = HeldOutBatches(windows_of(40), held, global_batch)
    shown = [whole_batch(batches, step) for step in range(batches.count)]
    assert all(batch.tokens.shape == (global_batch, SEQ_LEN) for batch in shown)
    predicting = [
        number for b in shown for number in (b.labels[(b.labels != NO_LABEL).all(axis=1), 0] - 1) // SEQ_LEN
    ]
    assert predicting == held.tolist()
    assert sum((batch.labels != NO_LABEL).sum() for batch in shown) == count * SEQ_LEN


@pytest.mark.parametrize(("step", "indices"), [(-1, [0]), (0, [4]), (0, [-1])])
@pytest.mark.parametrize("source", SOURCES)
def test_rows_that_a_batch_does_not_have_are_a_defect(source, step, indices):
    with pytest.raises(AssertionError):
        SOURCES[source]().rows(step, indices)


@pytest.mark.parametrize("source", SOURCES)
def test_no_rows_are_an_empty_batch(source):
    batch = SOURCES[source]().rows(3, [])
    assert batch.tokens.shape == batch.labels.shape == (0, SEQ_LEN)


def test_labels_of_synthetic_tokens_are_the_next_tokens():
    batch = whole_batch(synthetic(seq_len=30), 2)
    assert (batch.labels[:, :-1] == batch.tokens[:, 1:]).all()


def test_synthetic_training_and_evaluation_share_the_circle_and_no_sequence():
    train = whole_batch(synthetic(noise=0.0, seq_len=60), 0)
    held = whole_batch(synthetic(noise=0.0, seq_len=60, stream=HELD_OUT), 0)
    following = dict(zip(train.tokens.ravel().tolist(), train.labels.ravel().tolist(), strict=True))
    assert len(following) == 50
    assert [following[token] for token in held.tokens.ravel().tolist()] == held.labels.ravel().tolist()
    assert (train.tokens[:, 0] != held.tokens[:, 0]).any()


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.5, 1.0])
def test_the_least_loss_is_the_entropy_of_what_is_drawn(noise):
    """The loss of a model that counted all pairs of many sequences comes near it, from a sample of the same chain."""
    batches = SyntheticBatches(vocab=8, seq_len=1000, global_batch=100, seed=1, noise=noise)
    batch = whole_batch(batches, 0)
    pairs = np.zeros((8, 8))
    np.add.at(pairs, (batch.tokens.ravel(), batch.labels.ravel()), 1)
    share = pairs / pairs.sum(axis=1, keepdims=True)
    loss = -(pairs[pairs > 0] * np.log(share[pairs > 0])).sum() / pairs.sum()
    assert loss == pytest.approx(batches.least_loss, abs=0.01)


def test_a_small_vocabulary_bounds_the_circle():
    for vocab, used in ((1, 1), (7, 7), (100_000, 256)):
        batches = synthetic(vocab=vocab, seq_len=50)
        assert batches.tokens_used == used
        assert whole_batch(batches, 0).tokens.max() < used
