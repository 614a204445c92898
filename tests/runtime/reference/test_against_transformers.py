"""Tiny models of every family against transformers: logits, gradients, and weights in both directions."""

import json
from contextlib import nullcontext

import pytest
import torch
from tiny_models import TINY, tiny
from transformers_oracle import (
    GOLDEN,
    all_double,
    loaded_model,
    loss_of,
    random_model,
    recorded,
    tokens_and_labels,
)

from meshwright.model.named_tensors import named_parameters
from meshwright.runtime.reference.decoder import reference_logits, reference_loss
from meshwright.runtime.weights.load import load
from meshwright.runtime.weights.save import save

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
]  # the oracle's own warnings are not ours

# BLOOM's GELU has a backward pass of its own, with constants of eight to ten digits.
GRADIENT_BOUNDS = {"bloom": 1e-8}
PRECISIONS = {
    "float32": (torch.float32, nullcontext, 1e-5),
    "float64 with casts to float32": (torch.float64, nullcontext, 1e-5),
    "float64": (torch.float64, all_double, 1e-12),
}


def error(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return ((ours - theirs).abs().max() / theirs.abs().max()).item()


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", TINY)
def test_logits_of_their_weights_are_theirs(name, precision, tmp_path):
    dtype, doubled, bound = PRECISIONS[precision]
    tokens_BL, _ = tokens_and_labels()
    with doubled(), torch.no_grad():
        model = random_model(name, dtype)
        model.save_pretrained(tmp_path)
        theirs_BLV = model(input_ids=tokens_BL).logits
    ours_BLV = reference_logits(tiny(name), load(tmp_path, tiny(name)), tokens_BL)
    assert ours_BLV.dtype == theirs_BLV.dtype == dtype
    assert error(ours_BLV, theirs_BLV) <= bound


@pytest.mark.parametrize("name", ["llama", "qwen3", "gpt2", "deepseek_v3", "qwen3_moe"])
def test_packed_documents_are_theirs_under_a_mask_of_four_dimensions(name, tmp_path):
    tokens_BL, labels_BL = tokens_and_labels()
    places_L = torch.arange(tokens_BL.shape[1])
    starts_BL = torch.zeros_like(tokens_BL)
    starts_BL[0, [3, 10]] = 1
    starts_BL[1, [1, 2, 15]] = 1
    begins_BL = (starts_BL * places_L).cummax(1).values
    seen_BLL = (places_L <= places_L[:, None]) & (places_L >= begins_BL[..., None])
    with all_double():
        model = random_model(name, torch.float64)
        model.save_pretrained(tmp_path / "weights")
        mask = torch.where(seen_BLL[:, None], 0.0, torch.finfo(torch.float64).min)
        said = {"attention_mask": mask, "position_ids": places_L - begins_BL}
        loss_of(model(input_ids=tokens_BL, **said).logits, labels_BL).backward()
    theirs = gradients_of(model, tiny(name), tmp_path / "gradients")
    tensors = load(tmp_path / "weights", tiny(name))
    ours = {key: tensors[key].requires_grad_() for key in named_parameters(tiny(name))}
    count = (labels_BL != -100).sum().item()
    reference_loss(tiny(name), tensors, tokens_BL, labels_BL, count, begins_BL=begins_BL).backward()
    largest = max(tensor.grad.abs().max() for tensor in ours.values())
    for key, tensor in ours.items():
        difference = (theirs[key] - tensor.grad).abs().max()
        assert difference <= 1e-12 * max(tensor.grad.abs().max(), 1e-3 * largest), key


@pytest.mark.parametrize("name", TINY)
def test_gradients_are_theirs(name, tmp_path):
    tokens_BL, labels_BL = tokens_and_labels()
    with all_double():
        model = random_model(name, torch.float64)
        model.save_pretrained(tmp_path / "weights")
        loss_of(model(input_ids=tokens_BL).logits, labels_BL).backward()
    tensors, trained = load(tmp_path / "weights", tiny(name)), named_parameters(tiny(name))
    ours = {key: tensors[key].requires_grad_() for key in trained}
    reference_loss(tiny(name), tensors, tokens_BL, labels_BL, (labels_BL != -100).sum().item()).backward()
    theirs = gradients_of(model, tiny(name), tmp_path / "gradients")
    bound = GRADIENT_BOUNDS.get(name, 1e-12)
    largest = max(tensor.grad.abs().max() for tensor in ours.values())
    for key, tensor in ours.items():
        difference = (theirs[key] - tensor.grad).abs().max()
        assert difference <= bound * max(tensor.grad.abs().max(), 1e-3 * largest), key


def gradients_of(model, graph, folder):
    """Gradients by our names: stored in the place of what they are gradients of."""
    for parameter in model.parameters():
        parameter.data = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
    model.save_pretrained(folder)
    return load(folder, graph)


@pytest.mark.parametrize("name", ["mixtral", "qwen2_moe", "qwen3_moe", "gpt_oss"])
def test_a_routed_layers_balance_is_theirs(name, tmp_path):
    """Theirs pools the layers, which is the same where there is one."""
    changes = {"num_hidden_layers": 1, "router_aux_loss_coef": 0.3, "output_router_logits": True}
    changes |= {"mlp_only_layers": [], "decoder_sparse_step": 1} if "qwen" in name else {}
    tokens_BL, labels_BL = tokens_and_labels()
    with all_double(), torch.no_grad():
        model = random_model(name, torch.float64, **changes)
        model.save_pretrained(tmp_path)
        theirs = 0.3 * model(input_ids=tokens_BL).aux_loss
    tensors = load(tmp_path, tiny(name, **changes))
    quiet = tiny(name, **{**changes, "output_router_logits": False})
    whole, plain = (
        reference_loss(graph, tensors, tokens_BL, labels_BL, 1.0) for graph in (tiny(name, **changes), quiet)
    )
    assert (whole - plain).item() == pytest.approx(theirs.item(), rel=1e-9)


@pytest.mark.parametrize("name", TINY)
def test_they_load_what_we_save_bit_for_bit(name, tmp_path):
    tokens_BL, _ = tokens_and_labels()
    prefix = "language_model.model." if name == "gemma3_text tower" else None
    with torch.no_grad():
        model = random_model(name, torch.float32)
        model.save_pretrained(tmp_path / "theirs")
        tensors = load(tmp_path / "theirs", tiny(name))
        save(tmp_path / "ours", tiny(name), tensors, max_file_bytes=40_000, prefix=prefix)
        again = loaded_model(name, tmp_path / "ours", torch.float32)
        assert torch.equal(again(input_ids=tokens_BL).logits, model(input_ids=tokens_BL).logits)


@pytest.mark.parametrize(
    "name", ["llama", "phi3", "bloom", "qwen3_vl_text", "mixtral", "deepseek_v3", "gpt_oss"]
)
def test_recorded_numbers_are_what_transformers_computes(name):
    golden, fresh = json.loads(GOLDEN.read_text())["models"][name], recorded(name)
    assert fresh["loss"] == pytest.approx(golden["loss"], rel=1e-12)
    assert torch.tensor(fresh["logits"]).allclose(torch.tensor(golden["logits"]), rtol=1e-9, atol=1e-12)
