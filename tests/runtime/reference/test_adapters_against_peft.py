"""Adapters against the library ``peft``: loss, gradients, initial values, and adapters in both directions."""

import pytest
import torch
from adapter_plans import adapted
from tiny_models import tiny
from transformers_oracle import all_double, loaded_model, tokens_and_labels

from meshwright.model.named_tensors import adapter_shapes, base_shapes
from meshwright.runtime.reference.decoder import reference_logits, reference_loss
from meshwright.runtime.verify.run_case import run_case
from meshwright.runtime.weights.peft_files import save_adapters
from meshwright.runtime.weights.random_tensors import random_tensors
from meshwright.runtime.weights.save import save

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
]  # the oracle's own warnings are not ours
"""The oracle imports much."""
PLAN = adapted(adapter=(("rank", 4), ("alpha", 6.0)))
BOUND = 1e-12


def stored_name(name):
    """The name that peft gives to a tensor of ours."""
    return f"base_model.model.model.{name.replace('.weight', '')}.default.weight"


def with_peft(tensors, model, folder):
    """The model of transformers with these weights, and peft's adapters with our values."""
    peft = pytest.importorskip("peft")
    save(folder, tiny("llama"), {name: tensors[name] for name in base_shapes(model)})
    theirs = loaded_model("llama", folder, torch.float64)
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    config = peft.LoraConfig(r=4, lora_alpha=6, target_modules=targets, lora_dropout=0.0)
    adapters = peft.get_peft_model(theirs, config)
    named = dict(adapters.named_parameters())
    with torch.no_grad():
        for name in adapter_shapes(model):
            named[stored_name(name)].copy_(tensors[name])
    return adapters, named


def test_loss_and_gradients_are_those_of_peft(tmp_path):
    _, model = PLAN.lowered()
    tensors = random_tensors(model, 3, torch.float64, 0.2)
    tokens_BL, labels_BL = tokens_and_labels()
    with all_double():
        theirs, named = with_peft(tensors, model, tmp_path)
        logits_BLV = theirs(input_ids=tokens_BL).logits
        expected = torch.nn.functional.cross_entropy(logits_BLV.flatten(0, 1), labels_BL.flatten())
        expected.backward()
    ours = {name: tensors[name].requires_grad_() for name in adapter_shapes(model)}
    loss = reference_loss(model, tensors, tokens_BL, labels_BL, int((labels_BL != -100).sum()))
    loss.backward()
    assert abs(loss.item() - expected.item()) <= BOUND * expected.item()
    trained = {name for name, parameter in named.items() if parameter.requires_grad}
    assert trained == {stored_name(name) for name in ours}
    for name, tensor in ours.items():
        gradient = named[stored_name(name)].grad
        assert (tensor.grad - gradient).abs().max() <= BOUND * gradient.abs().max()


def test_peft_reads_the_adapters_that_are_saved(tmp_path):
    peft = pytest.importorskip("peft")
    _, model = PLAN.lowered()
    tensors = random_tensors(model, 3, torch.float64, 0.2)
    tokens_BL, _ = tokens_and_labels()
    save(tmp_path / "base", tiny("llama"), {name: tensors[name] for name in base_shapes(model)})
    adapters = {name: tensors[name].to(torch.float32) for name in adapter_shapes(model)}
    save_adapters(tmp_path / "adapter", model, adapters, str(tmp_path / "base"))
    with torch.no_grad():
        with all_double():
            base = loaded_model("llama", tmp_path / "base", torch.float64)
        theirs = peft.PeftModel.from_pretrained(base, tmp_path / "adapter").double()
        with all_double():
            found = theirs(input_ids=tokens_BL).logits
        wide = {name: tensor.to(torch.float64) for name, tensor in adapters.items()}
        expected = reference_logits(model, tensors | wide, tokens_BL)
    assert (found - expected).abs().max() <= BOUND * expected.abs().max()


def test_the_executor_equals_the_reference_that_equals_peft():
    outcome = run_case(PLAN.trial(), lambda what, part: None)
    assert outcome.equal
