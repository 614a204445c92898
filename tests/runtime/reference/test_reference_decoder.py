"""The plain decoder: recorded numbers of transformers, and what every causal decoder has in common."""

import json
from itertools import pairwise

import pytest
import torch
from encoder_models import ENCODER_MODELS, encoder_model
from tiny_models import LENGTH, SIZES, TINY, tiny
from transformers_oracle import DEVIATION, GOLDEN, SEED, loss_of, shown, tokens_and_labels

from meshwright.errors import UnsupportedError
from meshwright.model.families.architecture_table import read_architecture
from meshwright.model.families.numerics_table import FAMILY_NUMERICS
from meshwright.model.named_tensors import named_parameters
from meshwright.model.operators.blocks import build_graph
from meshwright.model.rotary import Rotary
from meshwright.runtime.reference.decoder import reference_logits, reference_loss
from meshwright.runtime.reference.softmax_attention import rotated
from meshwright.runtime.weights.random_tensors import random_tensors

RECORDED = json.loads(GOLDEN.read_text())["models"]


def tensors_of(name, dtype=torch.float64):
    return random_tensors(tiny(name), SEED, dtype, DEVIATION)


def test_every_family_has_a_tiny_model_and_every_tiny_model_is_recorded():
    compared = {tiny(name).architecture.family for name in TINY}
    compared |= {encoder_model(name).architecture.family for name in ENCODER_MODELS}
    assert compared | {"kimi_k2"} == set(FAMILY_NUMERICS)
    assert RECORDED.keys() | {"gemma3_text tower"} == TINY.keys()


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize("name", RECORDED)
def test_logits_and_loss_are_the_recorded_ones(name, dtype, bound):
    tokens_BL, labels_BL = tokens_and_labels()
    logits_BLV = reference_logits(tiny(name), tensors_of(name, dtype), tokens_BL)
    assert logits_BLV.dtype == dtype
    found, wanted = shown(loss_of(logits_BLV, labels_BL), logits_BLV), RECORDED[name]
    assert found["loss"] == pytest.approx(wanted["loss"], rel=bound)
    difference = torch.tensor(found["logits"]).double() - torch.tensor(wanted["logits"]).double()
    assert difference.abs().max() <= bound * logits_BLV.abs().max()


@pytest.mark.parametrize("name", TINY)
def test_a_token_is_seen_by_itself_and_later_ones_only(name):
    tokens_BL, _ = tokens_and_labels()
    changed_BL = tokens_BL.clone()
    changed_BL[:, 7] = (changed_BL[:, 7] + 1) % 90
    before, after = (reference_logits(tiny(name), tensors_of(name), t) for t in (tokens_BL, changed_BL))
    assert torch.equal(before[:, :7], after[:, :7])
    assert (before[:, 7] - after[:, 7]).abs().max() > 1e-3


def test_a_window_is_the_number_of_positions_that_a_layer_sees():
    tokens_BL, _ = tokens_and_labels()
    changed_BL = tokens_BL.clone()
    changed_BL[:, 0] = (changed_BL[:, 0] + 1) % 90
    model = tiny("mistral", num_hidden_layers=1)
    tensors = random_tensors(model, SEED, torch.float64, DEVIATION)
    moved = reference_logits(model, tensors, tokens_BL) != reference_logits(model, tensors, changed_BL)
    assert moved.any(dim=2)[0].tolist() == [True] * 5 + [False] * (LENGTH - 5)


@pytest.mark.parametrize("name", [name for name in TINY if name != "phi3 longrope"])
def test_packed_documents_are_what_each_is_by_itself(name):
    """But for rotations that depend on the sequence's length."""
    tokens_BL, _ = tokens_and_labels()
    borders, tensors = (0, 1, 7, 20, LENGTH), tensors_of(name)
    begins_BL = torch.zeros_like(tokens_BL)
    for start in borders:
        begins_BL[:, start:] = start
    packed = reference_logits(tiny(name), tensors, tokens_BL, begins_BL)
    for start, stop in pairwise(borders):
        alone = reference_logits(tiny(name), tensors, tokens_BL[:, start:stop])
        assert torch.allclose(packed[:, start:stop], alone, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", TINY)
def test_every_parameter_has_a_gradient(name):
    tokens_BL, labels_BL = tokens_and_labels()
    tensors = tensors_of(name)
    trained = {key: tensors[key].requires_grad_() for key in named_parameters(tiny(name))}
    reference_loss(tiny(name), tensors, tokens_BL, labels_BL, 42).backward()
    nothing = {key for key, tensor in trained.items() if tensor.grad.abs().max() < 1e-12}
    # without a rotation a key's bias adds the same to all scores of a query, which the softmax does not see
    unrotated = {
        f"layers.{layer}.self_attn.k_proj.bias"
        for layer, rotary in enumerate(tiny(name).architecture.numerics.rotary)
        if rotary is None
    }
    assert nothing == unrotated & tensors.keys()


def test_the_loss_is_a_sum_over_labels_divided_by_what_it_is_told():
    tokens_BL, labels_BL = tokens_and_labels()
    tensors, model = tensors_of("llama"), tiny("llama")
    whole = reference_loss(model, tensors, tokens_BL, labels_BL, 42)
    halves = [reference_loss(model, tensors, tokens_BL[i : i + 1], labels_BL[i : i + 1], 42) for i in (0, 1)]
    assert whole.item() == pytest.approx(sum(halves).item(), rel=1e-14)
    count = (labels_BL != -100).sum().item()
    mean = loss_of(reference_logits(model, tensors, tokens_BL), labels_BL)
    assert whole.item() == pytest.approx(mean.item() * count / 42, rel=1e-14)


def test_a_model_that_is_planned_only_is_refused():
    moe = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8}
    model = build_graph(
        read_architecture({**SIZES, **moe, "model_type": "qwen3_vl_moe_text"}, "test", "here")
    )
    with pytest.raises(UnsupportedError, match="models of type qwen3_vl_moe_text can be planned"):
        reference_logits(model, {}, torch.zeros(1, 1, dtype=torch.long))
    with pytest.raises(UnsupportedError, match="models of type qwen3_vl_moe_text can be planned"):
        random_tensors(model, 0)


def test_a_random_tensor_depends_on_seed_and_name_only():
    longer = random_tensors(tiny("qwen3", num_hidden_layers=5), 3)
    shorter, other = random_tensors(tiny("qwen3"), 3), random_tensors(tiny("qwen3"), 4)
    assert all(torch.equal(tensor, longer[name]) for name, tensor in shorter.items())
    assert not any(torch.equal(tensor, other[name]) for name, tensor in shorter.items())
    single = random_tensors(tiny("qwen3"), 3, torch.float32)
    assert all(torch.equal(tensor.float(), single[name]) for name, tensor in shorter.items())


@pytest.mark.parametrize(("name", "neutral"), [("qwen3", 1.0), ("gemma2", 0.0)])
def test_random_norms_are_neutral_up_to_noise(name, neutral):
    tensors = random_tensors(tiny(name), 3)
    norms = torch.cat([tensor for key, tensor in tensors.items() if key.endswith("norm.weight")])
    matrices = torch.cat(
        [tensor.flatten() for key, tensor in tensors.items() if key.endswith("_proj.weight")]
    )
    assert norms.mean().item() == pytest.approx(neutral, abs=0.005)
    assert norms.std().item() == pytest.approx(0.02, rel=0.1)
    assert matrices.std().item() == pytest.approx(0.02, rel=0.02)


@pytest.mark.parametrize("interleaved", [False, True])
def test_a_rotation_makes_scores_depend_on_distances_and_keeps_lengths(interleaved):
    rotary = Rotary(theta=100.0, dim=6, interleaved=interleaved)
    generator = torch.Generator().manual_seed(0)
    q_N, k_N = torch.randn(2, 8, generator=generator, dtype=torch.float64)
    whole_BL = torch.zeros(1, 10, dtype=torch.long)
    q_LN, k_LN = (rotated(x_N.expand(1, 10, 1, 8), rotary, whole_BL)[0, :, 0] for x_N in (q_N, k_N))
    scores_LL = q_LN @ k_LN.T
    torch.testing.assert_close(scores_LL[3:, 3:], scores_LL[:-3, :-3])
    assert not scores_LL[0].allclose(scores_LL[0, :1])
    torch.testing.assert_close(q_LN.norm(dim=1), q_N.norm().expand(10))
    assert torch.equal(q_LN[:, 6:], q_N[6:].expand(10, 2))
