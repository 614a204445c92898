"""T5 and Qwen2.5-VL against transformers: logits, gradients, positions of images, and weights in both directions."""

import json
import math
from itertools import product

import pytest
import torch
from encoder_models import (
    ENCODER_MODELS,
    IMAGE_TOKEN,
    IMAGES,
    encoder_batch,
    encoder_model,
    transformers_logits,
    transformers_model,
)
from transformers_oracle import GOLDEN, all_double, loss_of, names_with_encoder, recorded_with_encoder

from meshwright.model.named_tensors import named_parameters
from meshwright.runtime.reference.decoder import reference_logits, reference_loss
from meshwright.runtime.reference.text_encoder import bucket
from meshwright.runtime.reference.vision_encoder import image_positions
from meshwright.runtime.weights.load import load
from meshwright.runtime.weights.save import save
from meshwright.workload.images import Images

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

# 2x140: 10 x 14 patches in windows of 8; 1x16: one window; 2x48: 6 x 8; 3x4: one row of text for each image
GRIDS = [Images(2, 140), Images(1, 16), Images(2, 48), Images(3, 4)]
CASES = [(name, IMAGES.get(name)) for name in ENCODER_MODELS] + [("qwen2_5_vl", grid) for grid in GRIDS[1:]]


def loaded(model, name, folder):
    model.save_pretrained(folder)
    return load(folder, encoder_model(name))


@pytest.mark.parametrize(("name", "images"), CASES, ids=str)
def test_logits_and_gradients_are_theirs(name, images, tmp_path):
    batch, graph = encoder_batch(name, images), encoder_model(name)
    with all_double():
        model = transformers_model(name, torch.float64)
        tensors = loaded(model, name, tmp_path / "weights")
        theirs_BLV = transformers_logits(model, name, batch)
        loss_of(theirs_BLV, batch.labels).backward()
    for parameter in model.parameters():
        parameter.data = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
    theirs = loaded(model, name, tmp_path / "gradients")
    ours = {key: tensors[key].requires_grad_() for key in named_parameters(graph)}
    assert ours.keys() == theirs.keys()
    logits_BLV = reference_logits(graph, tensors, batch.tokens, **batch.inputs)
    assert (logits_BLV - theirs_BLV).abs().max() <= 1e-12 * theirs_BLV.abs().max()
    count = (batch.labels != -100).sum().item()
    reference_loss(graph, tensors, batch.tokens, batch.labels, count, **batch.inputs).backward()
    largest = max(tensor.grad.abs().max() for tensor in ours.values())
    for key, tensor in ours.items():
        difference = (theirs[key] - tensor.grad).abs().max()
        assert difference <= 1e-11 * max(tensor.grad.abs().max(), 1e-3 * largest), key


@pytest.mark.parametrize("name", ENCODER_MODELS)
def test_they_load_what_we_save_bit_for_bit(name, tmp_path):
    batch = encoder_batch(name, dtype=torch.float32)
    with torch.no_grad():
        model = transformers_model(name, torch.float32)
        tensors = loaded(model, name, tmp_path / "theirs")
        save(tmp_path / "ours", encoder_model(name), tensors, max_file_bytes=40_000)
        model.config.save_pretrained(tmp_path / "ours")
        again = type(model).from_pretrained(
            tmp_path / "ours", dtype=torch.float32, attn_implementation="eager"
        )
        logits = [transformers_logits(m.eval(), name, batch) for m in (again, model)]
    assert torch.equal(*logits)


@pytest.mark.parametrize("name", ENCODER_MODELS)
def test_every_parameter_is_counted(name):
    theirs = sum(parameter.numel() for parameter in transformers_model(name, torch.float32).parameters())
    shapes = (parameter.shape for parameter in named_parameters(encoder_model(name)).values())
    assert sum(map(math.prod, shapes)) == theirs == encoder_model(name).parameters


@pytest.mark.parametrize("name", ENCODER_MODELS)
def test_recorded_numbers_and_names_are_theirs(name):
    golden, fresh = json.loads(GOLDEN.read_text()), recorded_with_encoder(name)
    numbers = golden["encoder_models"][name]
    assert fresh["loss"] == pytest.approx(numbers["loss"], rel=1e-12)
    assert torch.tensor(fresh["logits"]).allclose(torch.tensor(numbers["logits"]), rtol=1e-9, atol=1e-12)
    assert golden["encoder_names"][name] == names_with_encoder(name)


def test_positions_of_one_image_are_those_of_their_rope_index():
    name, images = "qwen2_5_vl", Images(1, 140)
    model, batch = transformers_model(name, torch.float32), encoder_batch(name, images)
    ids = batch.tokens.clone()
    ids[:, :35] = IMAGE_TOKEN
    grid = torch.tensor([[1, *images.grid(2)]] * len(ids))
    theirs, _ = model.model.get_rope_index(ids, (ids == IMAGE_TOKEN).int(), image_grid_thw=grid)
    ours = image_positions(encoder_model(name).architecture.encoder, images, ids.shape[1])
    assert torch.equal(ours.T, theirs[:, 0])


@pytest.mark.parametrize(("buckets", "farthest"), [(32, 128), (8, 20), (11, 20), (4, 3), (64, 1000)])
def test_buckets_are_theirs(buckets, farthest):
    from transformers.models.t5.modeling_t5 import T5Attention

    distance = torch.arange(-1500, 1501)
    for both_ways, share in ((True, buckets // 2), (False, buckets)):
        theirs = T5Attention._relative_position_bucket(distance, both_ways, buckets, farthest).tolist()
        for key, found in zip(distance.tolist(), theirs, strict=True):
            ahead = share if both_ways and key > 0 else 0
            length = abs(key) if both_ways else max(-key, 0)
            assert found == bucket(length, share, farthest) + ahead, (key, both_ways)


def test_cases_meet_windows_of_every_kind():
    sizes = {window for images, side in product(GRIDS, (8,)) for window in images.windows(2, side)}
    assert {64, 48, 16, 12, 4} <= sizes
