"""Plans whose last layers predict further tokens compute what one device does."""

import pytest
import torch
from covering_plans import told
from next_token_faults import NEXT_TOKEN_FAULTS
from next_token_plans import FEW, MORE, further
from safetensors.torch import load_file
from tiny_models import tiny

from meshwright.runtime.batch.rank_micro_batches import StepBatch, micro_batches, next_token_layers
from meshwright.runtime.kernels.vocabulary.sharded_softmax import IGNORED
from meshwright.runtime.reference.decoder import Decoder, reference_loss
from meshwright.runtime.verify.case_result import DOUBTFUL
from meshwright.runtime.verify.run_case import run_case, run_case_with_clipping
from meshwright.runtime.weights.load import load
from meshwright.runtime.weights.save import save


def named(plan):
    return f"{plan.model} {told(plan)}"


def equal_to_one_device(plan):
    outcome = run_case_with_clipping(plan.trial(), lambda what, part: None)
    assert outcome.caught_by == (), outcome
    assert outcome.worst.value < DOUBTFUL


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("plan", FEW, ids=named)
def test_gradients_and_bytes_are_those_of_one_device_and_of_the_program(plan):
    assert next_token_layers(plan.lowered()[0]) == plan.graph().architecture.next_token_layers > 0
    equal_to_one_device(plan)


@pytest.mark.slow
@pytest.mark.parametrize("plan", MORE, ids=named)
def test_whatever_else_meets_them(plan):
    equal_to_one_device(plan)


def test_labels_one_place_too_few_ahead_are_seen():
    fault = NEXT_TOKEN_FAULTS[0]
    outcome = run_case(fault.plan.trial(), lambda what, part: None, fault.put_in)
    assert fault.name.startswith("labels")
    assert fault.is_seen(outcome), outcome


def test_the_loss_is_that_of_the_report():
    """Equations 21 to 25 of arXiv 2412.19437, module by module."""
    trial = further("glm4_moe", 2).trial()
    arch, tensors, batch = trial.model.architecture, trial.tensors(), trial.batches()[0]
    decoder = Decoder(arch, arch.numerics, tensors, torch.zeros_like(batch.tokens))
    stream = decoder.embedded(batch.tokens)
    plain = arch.layers - 2
    for number in range(plain):
        stream = decoder.fed_forward(number, decoder.after_attention(number, stream))[0]
    length, total = batch.tokens.shape[1], 0.0

    def rms(name, x):
        return x / (x.pow(2).mean(-1, keepdim=True) + arch.norm_epsilon).sqrt() * tensors[f"{name}.weight"]

    h = rms("head.norm", stream)
    for module in (0, 1, 2):
        if module:
            number = plain + module - 1
            layer = f"layers.{number}"
            ahead = [
                tensors["embed.embed_tokens.weight"][batch.tokens[:, i + module]]
                for i in range(length - module)
            ]
            ahead += [torch.zeros_like(ahead[0])] * module
            both = torch.cat([rms(f"{layer}.enorm", torch.stack(ahead, 1)), rms(f"{layer}.hnorm", h)], -1)
            x = both @ tensors[f"{layer}.eh_proj.weight"].T
            x = decoder.fed_forward(number, decoder.after_attention(number, x))[0]
            h = rms(f"{layer}.shared_head.norm", x)
        chances = (h @ tensors["head.lm_head.weight"].T).log_softmax(-1)
        for sequence in range(len(batch.tokens)):
            for i in range(length - module):
                label = int(batch.labels[sequence, i + module])
                if label != IGNORED:
                    total -= float(chances[sequence, i, label]) * (0.3 / 2 if module else 1) / batch.counted
    found = reference_loss(trial.model, tensors, batch.tokens, batch.labels, batch.counted)
    assert float(found) == pytest.approx(total, rel=1e-12)


def test_what_stands_ahead_comes_over_the_borders_of_ranks_and_stops_at_documents_ends():
    program, _ = further("glm4_moe", 2, cp=2).lowered()
    places = torch.arange(int(program.parts.only.shape.seq_len)).expand(int(program.micro_batches), -1)
    batch = StepBatch(places, places + 100, torch.where(places < 10, 0, 10))
    for rank in (0, 1):
        for part in micro_batches(program, rank, batch, 1, torch.device("cpu")):
            for by, ahead in enumerate(part.further, start=1):
                for place, token, label in zip(part.tokens, ahead.tokens, ahead.labels, strict=True):
                    inside = place + by < (10 if place < 10 else places.shape[1])
                    assert int(label) == (int(place) + by + 100 if inside else IGNORED)
                    assert int(token) == int(place) + by or place + by >= places.shape[1]


def test_checkpoints_have_the_names_of_deepseek(tmp_path):
    model = further("deepseek_v3", 1).graph()
    trial = further("deepseek_v3", 1).trial()
    tensors = trial.tensors()
    save(tmp_path, model, tensors)
    stored = load_file(tmp_path / "model.safetensors")
    names = {name.removeprefix("model.layers.3.") for name in stored if name.startswith("model.layers.3.")}
    own = {"eh_proj.weight", "enorm.weight", "hnorm.weight", "shared_head.norm.weight"}
    assert {*own, "embed_tokens.weight", "shared_head.head.weight", "mlp.gate.weight"} <= names
    assert torch.equal(stored["model.layers.3.shared_head.head.weight"], stored["lm_head.weight"])
    assert torch.equal(stored["model.layers.3.embed_tokens.weight"], stored["model.embed_tokens.weight"])
    again = load(tmp_path, model)
    assert again.keys() == tensors.keys()
    assert all(torch.equal(again[name], tensor) for name, tensor in tensors.items())
    assert load(tmp_path, tiny("deepseek_v3")).keys() == {n for n in tensors if not n.startswith("layers.3.")}
