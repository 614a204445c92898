"""Inputs of encoders: made-up texts and patches, windows of a corpus that the decoder continues, refused data."""

from itertools import pairwise
from math import log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.errors import InputError
from meshwright.model.encoder import TextEncoder, VisionEncoder
from meshwright.runtime.data.batches import whole_batch
from meshwright.runtime.data.corpus import Corpus
from meshwright.runtime.data.encoder_input import EncoderInput, encoder_input
from meshwright.runtime.data.open_data import DataNeeds, open_data
from meshwright.runtime.data.sequence_windows import NO_LABEL, Windows
from meshwright.runtime.data.synthetic_data import HELD_OUT, SyntheticBatches
from meshwright.runtime.training.options import TrainingOptions
from meshwright.workload.encoder_lengths import NO_ENCODER, EncoderLengths
from meshwright.workload.images import Images

SEQ_LEN, ENCODER_TOKENS, VOCAB, SEQUENCES = 24, 40, 50, 8
TEXT = EncoderInput(tokens=ENCODER_TOKENS)
PATCHES = EncoderInput(tokens=48, elements=6, rows=12, images=Images(2, 24))
VISION = VisionEncoder(
    layers=2,
    hidden=16,
    heads=2,
    intermediate=20,
    patch_elements=6,
    merge=2,
    window=4,
    whole_image=(True, False),
)


def made_up(encoder, **changes):
    size = {"vocab": VOCAB, "seq_len": SEQ_LEN, "global_batch": SEQUENCES, "seed": 3}
    return SyntheticBatches(**size | changes, encoder=encoder)


def test_the_input_of_an_encoder_follows_from_model_and_workload():
    text = TextEncoder(layers=2, buckets=8, max_distance=20)
    assert encoder_input(None, NO_ENCODER) is None
    assert encoder_input(text, EncoderLengths(ENCODER_TOKENS)) == TEXT
    assert encoder_input(VISION, EncoderLengths(48, Images(2, 24))) == PATCHES


@pytest.mark.parametrize("encoder", [TEXT, PATCHES])
def test_inputs_depend_on_seed_and_sample_alone(encoder):
    batches = made_up(encoder)
    first, other = (whole_batch(batches, step).encoder for step in (0, 1))
    rows = batches.rows(0, [5, 2]).encoder
    assert (rows == first[[5, 2]]).all()
    assert rows.dtype == (np.float32 if encoder.elements else np.int64)
    assert batches.rows(0, []).encoder.shape == (0, *first.shape[1:])
    of_samples = [*first, *other]
    assert len({row.tobytes() for row in of_samples}) == len(of_samples)
    for changes in ({"seed": 4}, {"stream": HELD_OUT}):
        assert not (whole_batch(made_up(encoder, **changes), 0).encoder == first).all()


def test_an_encoder_s_text_walks_the_decoder_s_circle_from_elsewhere():
    batch = whole_batch(made_up(TEXT, noise=0.0), 0)
    plain = whole_batch(made_up(None, noise=0.0), 0)
    assert batch.encoder.shape == (SEQUENCES, ENCODER_TOKENS)
    assert (batch.tokens == plain.tokens).all()
    assert (batch.labels == plain.labels).all()
    steps = {*zip(batch.tokens.ravel().tolist(), batch.labels.ravel().tolist(), strict=True)}
    follows = dict(steps)
    assert len(follows) == len(steps)
    for row in batch.encoder.tolist():
        assert all(follows.get(token, after) == after for token, after in pairwise(row))
    assert (batch.encoder[:, 0] != batch.tokens[:, 0]).any()


def test_a_walk_jumps_as_often_as_noise_says():
    batches = made_up(EncoderInput(tokens=4000), noise=0.25, vocab=10**4, alphabet=10**4)
    still = whole_batch(made_up(EncoderInput(tokens=4000), noise=0.0, vocab=10**4, alphabet=10**4), 0).encoder
    follows = {a: b for row in still.tolist() for a, b in pairwise(row)}
    steps = [
        (a, b) for row in whole_batch(batches, 0).encoder.tolist() for a, b in pairwise(row) if a in follows
    ]
    jumps = sum(follows[a] != b for a, b in steps) / len(steps)
    assert abs(jumps - 0.25) < 4 * (0.25 * 0.75 / len(steps)) ** 0.5


def test_patches_are_standard_normal_numbers():
    wide = EncoderInput(tokens=48, elements=500, rows=12, images=Images(2, 24))
    patches = whole_batch(made_up(wide), 0).encoder
    assert patches.shape == (SEQUENCES, 48, 500)
    numbers, count = patches.ravel().astype(np.float64), patches.size
    assert abs(numbers.mean()) < 4 / count**0.5
    assert abs(numbers.var() - 1) < 4 * (2 / count) ** 0.5
    assert abs((numbers**3).mean()) < 4 * (15 / count) ** 0.5
    assert abs((np.abs(numbers) < 1).mean() - 0.6827) < 4 * (0.6827 * 0.3173 / count) ** 0.5
    odd = EncoderInput(tokens=1, elements=3, rows=1)
    assert whole_batch(made_up(odd), 0).encoder.shape == (SEQUENCES, 1, 3)


def test_the_last_image_row_predicts_the_first_token_of_the_text():
    batch, plain = (whole_batch(made_up(encoder), 0) for encoder in (PATCHES, None))
    rows = PATCHES.rows
    assert (batch.tokens[:, :rows] == 0).all()
    assert (batch.tokens[:, rows:] == plain.tokens[:, rows:]).all()
    assert (batch.labels[:, : rows - 1] == NO_LABEL).all()
    assert (batch.labels[:, rows - 1] == plain.tokens[:, rows]).all()
    assert (batch.labels[:, rows - 1 :] == plain.labels[:, rows - 1 :]).all()


def test_the_least_loss_counts_one_token_that_nothing_precedes():
    of_chain = made_up(None).least_loss
    assert made_up(TEXT).least_loss == of_chain
    predicted = SEQ_LEN - PATCHES.rows + 1
    expected = ((predicted - 1) * of_chain + log(VOCAB)) / predicted
    assert made_up(PATCHES).least_loss == pytest.approx(expected)
    assert (whole_batch(made_up(PATCHES), 0).labels[0] != NO_LABEL).sum() == predicted


@settings(deadline=None)
@given(
    tokens=st.integers(2, 80), seq_len=st.integers(1, 12), encoder_tokens=st.integers(1, 12), fill=st.just(99)
)
def test_the_decoder_continues_the_text_of_its_encoder(tokens, seq_len, encoder_tokens, fill):
    corpus = Corpus((np.arange(tokens, dtype=np.uint16),), ("",))
    windows = Windows(corpus, seq_len, fill=fill, encoder_tokens=encoder_tokens)
    batch = windows.rows(np.arange(windows.count))
    assert windows.count == len([*range(encoder_tokens + 1, tokens, encoder_tokens + seq_len)])
    assert batch.encoder.shape == (windows.count, encoder_tokens)
    for window, (read, own, labels) in enumerate(zip(batch.encoder, batch.tokens, batch.labels, strict=True)):
        start = window * (encoder_tokens + seq_len)
        assert read.tolist() == [*range(start, start + encoder_tokens)]
        predicted = (labels != NO_LABEL).sum()
        assert predicted == min(seq_len, tokens - start - encoder_tokens - 1) > 0
        assert own[:predicted].tolist() == [*range(read[-1] + 1, read[-1] + 1 + predicted)]
        assert (labels[:predicted] == own[:predicted] + 1).all()
        assert (own[predicted:] == fill).all()


def test_a_row_without_a_window_predicts_nothing():
    windows = Windows(Corpus((np.arange(9, dtype=np.uint16),), ("",)), 2, fill=7, encoder_tokens=3)
    batch = windows.rows(np.array([-1, 0]))
    assert batch.encoder.tolist() == [[7, 7, 7], [0, 1, 2]]
    assert batch.tokens.tolist() == [[7, 7], [3, 4]]
    assert batch.labels.tolist() == [[NO_LABEL] * 2, [4, 5]]


def opened(folder, encoder, tokens=200, **changes):
    np.save(folder / "a.npy", np.arange(tokens, dtype=np.uint16))
    given = {"steps": 1, "data": (str(folder / "a.npy"),), "cache": folder, "held_out": 0.25}
    needs = DataNeeds(vocab=256, seq_len=8, global_batch=1, encoder=encoder)
    return open_data(TrainingOptions(**given | changes), needs)


def test_data_of_files_are_a_text_that_encoder_and_decoder_share(tmp_path):
    data = opened(tmp_path, EncoderInput(tokens=12))
    for batches in (data.training, data.held_out):
        batch = whole_batch(batches, 0)
        assert batch.encoder[0].tolist() == [*range(batch.encoder[0, 0], batch.tokens[0, 0])]
    assert data.facts["windows"] + data.facts["held_out_windows"] == 10


@pytest.mark.parametrize("data", [(), None])
def test_a_run_with_another_encoder_input_is_another_run(tmp_path, data):
    changes = {} if data is None else {"data": data}
    text, other, plain = (
        opened(tmp_path, encoder, **changes).identity
        for encoder in (EncoderInput(tokens=12), EncoderInput(tokens=13), None)
    )
    assert text["encoder_tokens"] != other["encoder_tokens"]
    assert text.keys() - plain.keys() == {"encoder_tokens"}


def test_images_are_made_up_only(tmp_path):
    assert opened(tmp_path, PATCHES, data=()).identity["images"] == "2x24"
    with pytest.raises(InputError, match="images are made up") as caught:
        opened(tmp_path, PATCHES)
    assert [problem.field for problem in caught.value.problems] == ["data"]


def test_data_that_end_before_the_decoder_begins_are_refused(tmp_path):
    with pytest.raises(InputError, match="behind 12 of the encoder"):
        opened(tmp_path, EncoderInput(tokens=12), tokens=13)
    assert opened(tmp_path, EncoderInput(tokens=12), tokens=14, held_out=0.0).facts["windows"] == 1
