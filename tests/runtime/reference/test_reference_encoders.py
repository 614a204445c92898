"""Models with an encoder: recorded numbers of transformers, what a token sees, and how images lie."""

import json

import pytest
import torch
from encoder_models import ENCODER_MODELS, IMAGES, encoder_batch, encoder_model
from transformers_oracle import DEVIATION, GOLDEN, SEED, loss_of, shown

from meshwright.model.named_tensors import named_parameters
from meshwright.runtime.reference.decoder import reference_logits, reference_loss
from meshwright.runtime.reference.text_encoder import bucket
from meshwright.runtime.reference.vision_encoder import image_positions, patch_places, section_positions
from meshwright.runtime.weights.random_tensors import random_tensors
from meshwright.workload.images import Images

RECORDED = json.loads(GOLDEN.read_text())["encoder_models"]
TEXT_MODELS = [name for name in ENCODER_MODELS if name not in IMAGES]


def tensors_of(name):
    return random_tensors(encoder_model(name), SEED, torch.float64, DEVIATION)


def logits_of(name, batch, tensors, **changes):
    inputs = {**batch.inputs, **changes}
    tokens = inputs.pop("tokens", batch.tokens)
    return reference_logits(encoder_model(name), tensors, tokens, **inputs)


def test_every_model_is_recorded():
    assert RECORDED.keys() == ENCODER_MODELS.keys()


@pytest.mark.parametrize("name", ENCODER_MODELS)
def test_logits_and_loss_are_the_recorded_ones(name):
    batch = encoder_batch(name)
    logits_BLV = logits_of(name, batch, tensors_of(name))
    found, wanted = shown(loss_of(logits_BLV, batch.labels), logits_BLV), RECORDED[name]
    assert found["loss"] == pytest.approx(wanted["loss"], rel=1e-12)
    difference = torch.tensor(found["logits"]).double() - torch.tensor(wanted["logits"]).double()
    assert difference.abs().max() <= 1e-12 * logits_BLV.abs().max()


@pytest.mark.parametrize("name", ENCODER_MODELS)
def test_every_parameter_has_a_gradient(name):
    batch, tensors = encoder_batch(name), tensors_of(name)
    trained = {key: tensors[key].requires_grad_() for key in named_parameters(encoder_model(name))}
    reference_loss(
        encoder_model(name),
        tensors,
        batch.tokens,
        batch.labels,
        42,
        encoder=batch.encoder,
        images=batch.images,
    ).backward()
    assert not [key for key, tensor in trained.items() if tensor.grad.abs().max() < 1e-12]


@pytest.mark.parametrize("name", TEXT_MODELS)
def test_every_token_sees_the_whole_text_of_the_encoder_and_no_later_token(name):
    batch, tensors = encoder_batch(name), tensors_of(name)
    before = logits_of(name, batch, tensors)
    seen = batch.encoder.clone()
    seen[:, -1] = (seen[:, -1] + 1) % 90
    assert ((logits_of(name, batch, tensors, encoder=seen) - before).abs().amax(-1) > 1e-6).all()
    later = batch.tokens.clone()
    later[:, 7] = (later[:, 7] + 1) % 90
    after = logits_of(name, batch, tensors, tokens=later)
    assert torch.equal(after[:, :7], before[:, :7])
    assert (after[:, 7] - before[:, 7]).abs().max() > 1e-3


@pytest.mark.parametrize("name", IMAGES)
def test_a_row_sees_its_image_and_text_sees_all_of_them(name):
    """A patch of the last image changes the rows of that image only, and all text behind."""
    batch, tensors = encoder_batch(name), tensors_of(name)
    patches = batch.encoder.clone()
    patches[:, -1] += 1
    before, after = (logits_of(name, batch, tensors, encoder=each) for each in (batch.encoder, patches))
    merged = encoder_model(name).architecture.encoder.merged
    others = batch.images.tokens // merged * (batch.images.per_sequence - 1)
    assert torch.equal(after[:, :others], before[:, :others])
    behind = slice(batch.images.patches // merged, None)
    assert ((after[:, behind] - before[:, behind]).abs().amax(-1) > 1e-9).all()


def test_ids_at_the_rows_of_images_do_not_matter():
    batch, tensors = encoder_batch("qwen2_5_vl"), tensors_of("qwen2_5_vl")
    other = batch.tokens.clone()
    other[:, : batch.images.patches // 4] = 5
    both = (logits_of("qwen2_5_vl", batch, tensors, tokens=tokens) for tokens in (batch.tokens, other))
    assert torch.equal(*both)


def test_buckets_are_single_up_to_half_and_logarithmic_beyond():
    assert [bucket(distance, 16, 128) for distance in (0, 7, 8, 11, 12, 16, 32, 64, 127, 128, 10**6)] == [
        *(0, 7, 8, 8, 9, 10, 12, 14, 15, 15, 15)
    ]


def test_patches_lie_in_windows_of_squares():
    encoder = encoder_model("qwen2_5_vl").architecture.encoder
    images = Images(2, 140)
    places = patch_places(encoder, images)
    assert images.grid(2) == (10, 14)
    assert sorted((row, column) for _, row, column in places) == [
        (r, c) for r in range(10) for c in range(14)
    ]
    windows = [window for window, _, _ in places]
    assert windows == sorted(windows)
    assert [windows.count(window) for window in range(4)] == list(images.windows(2, 8)) == [64, 48, 16, 12]
    assert [place[1:] for place in places[:6]] == [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (0, 3)]
    assert places[64] == (1, 0, 8)


def test_text_continues_behind_the_greater_side_of_each_image():
    encoder = encoder_model("qwen2_5_vl").architecture.encoder
    positions = image_positions(encoder, Images(2, 24), 15).tolist()
    assert positions[:6] == [[0, row, column] for row in range(2) for column in range(3)]
    assert positions[6:12] == [[3, 3 + row, 3 + column] for row in range(2) for column in range(3)]
    assert positions[12:] == [[place] * 3 for place in (6, 7, 8)]


def test_sections_take_time_row_and_column_in_turn():
    assert section_positions((1, 2, 3), torch.tensor([[7, 8, 9]])).tolist() == [[7, 8, 8, 9, 9, 9]]
