"""Cases of verify with an encoder: random inputs as the workload says, of which a rank has its sequences'."""

import pytest
import torch
from encoder_models import encoder_model
from local_plans import ENCODER_TOKENS, IMAGES, SEQ_LEN, small

from meshwright.model.transforms.shrunk_model import shrunk_model
from meshwright.runtime.kernels.vocabulary.sharded_softmax import IGNORED
from meshwright.runtime.verify.run_case import run_case
from meshwright.runtime.verify.verify_case import VerifyCase, micro_batches

NAMES = ("t5", "qwen2_5_vl")


def trial(name, **degrees):
    sizes = {"layers": 2, "tp": 2, "seq_len": SEQ_LEN, "full_seq_len": 16 * SEQ_LEN}
    case = small(shrunk_model(encoder_model(name), **sizes), **degrees)
    return VerifyCase(case.program, case.model)


def test_a_text_of_its_own_length_is_drawn_for_each_sequence():
    case = trial("t5", dp_shard=2)
    first, other, *_ = case.batches()
    assert first.encoder.shape == (case.sequences, ENCODER_TOKENS) != first.tokens.shape
    assert first.encoder.dtype == torch.int64
    assert 0 <= first.encoder.min() < first.encoder.max() < case.model.architecture.vocab
    assert (first.encoder != other.encoder).any()
    assert case.images is None


def test_patches_come_with_rows_that_no_label_names():
    case = trial("qwen2_5_vl", dp_shard=2)
    encoder, batch = case.model.architecture.encoder, case.batches()[0]
    rows = IMAGES.patches // encoder.merged
    assert case.images == IMAGES
    assert batch.encoder.shape == (case.sequences, IMAGES.patches, encoder.patch_elements)
    assert batch.encoder.dtype == torch.float32
    assert (batch.tokens[:, :rows] == 0).all()
    assert (batch.labels[:, : rows - 1] == IGNORED).all()
    assert batch.labels[0, rows - 1] != IGNORED
    assert (batch.labels[:, rows - 1 :] != IGNORED).sum() == batch.counted > case.sequences


@pytest.mark.parametrize("name", NAMES)
def test_a_rank_has_all_of_its_own_sequences(name):
    case = trial(name, dp_shard=2, tp=2, sequence_parallel=True)
    batch = case.batches()[0]
    own = {rank: micro_batches(case, batch, rank) for rank in range(4)}
    found = torch.cat([one.encoder for rank in (0, 2) for one in own[rank]], dim=1)
    sequences = [found[:, at] for at in range(case.sequences)]
    assert found.shape == (batch.encoder.shape[1], case.sequences, *batch.encoder.shape[2:])
    assert all(any((one == row).all() for row in batch.encoder) for one in sequences)
    assert len({one.numpy().tobytes() for one in sequences}) == case.sequences
    for one, same in zip(own[0], own[1], strict=True):
        assert (one.encoder == same.encoder).all()
        assert one.encoder.is_contiguous()
        inside = [(row == one.encoder[:, 0]).all() for row in batch.encoder]
        assert (batch.tokens[inside.index(True)] == one.tokens[:, 0]).all()


@pytest.mark.parametrize("name", NAMES)
def test_a_part_of_a_batch_has_its_sequences_inputs(name):
    batch = trial(name).batches()[0]
    part = batch.of(slice(1, 3))
    assert (part.encoder == batch.encoder[1:3]).all()
    assert (part.tokens == batch.tokens[1:3]).all()
    assert (part.labels == batch.labels[1:3]).all()
    assert part.begins is None


@pytest.mark.parametrize(("name", "degrees"), [("t5", {"tp": 2}), ("qwen2_5_vl", {"pp": 2})])
def test_ranks_and_one_device_read_the_same_inputs(name, degrees):
    outcome = run_case(trial(name, **degrees), lambda what, part: None)
    assert outcome.caught_by == ()
