"""What transformers computes for a tiny model: the oracle of the slow tests and of the recorded numbers.

Running this file rewrites ``golden_logits.json``: ``python tests/runtime/transformers_oracle.py``.

transformers casts to single precision in norms, softmax and rotations, whatever the model's dtype: in float64 it is
right to some 1e-6. ``all_double`` takes those casts for casts to float64, so that the same code is an oracle to 1e-13.
"""

import json
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from encoder_models import (
    ENCODER_MODELS,
    encoder_batch,
    encoder_model,
    transformers_logits,
    transformers_model,
)
from safetensors.torch import load_file
from tiny_models import LENGTH, TEXT_TOKENS, TINY, plain_names, tiny, tiny_config
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from meshwright.runtime.weights.random_tensors import random_tensors
from meshwright.runtime.weights.save import save

GOLDEN = Path(__file__).with_name("golden_logits.json")
SEED = 11
DEVIATION = 0.2
"""Ten times the usual, so that attention looks at something and caps bend."""
SHOWN = (LENGTH // 2, LENGTH - 1)
"""Positions whose logits are recorded."""
WORDS = 6
EAGER = {"attn_implementation": "eager", "experts_implementation": "eager"}
"""Plain loops: fused products of experts know no double precision."""


class Doubled(TorchFunctionMode):
    """Takes float32 for float64 in every call."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.float:
            func = torch.Tensor.double
        double = [torch.float64 if value is torch.float32 else value for value in args]
        named = {
            key: torch.float64 if value is torch.float32 else value for key, value in (kwargs or {}).items()
        }
        return func(*double, **named)


@contextmanager
def all_double() -> Iterator[None]:
    """Single precision does not exist within."""
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with Doubled():
            yield
    finally:
        torch.set_default_dtype(usual)


def tokens_and_labels() -> tuple[torch.Tensor, torch.Tensor]:
    """Two sequences, and their next tokens with some masked.

    Token 0 pads: transformers gives its row of the table no gradient, wherever it stands, which we do not follow.
    """
    generator = torch.Generator().manual_seed(SEED)
    tokens_BL = torch.randint(1, TEXT_TOKENS, (2, LENGTH), generator=generator)
    labels_BL = tokens_BL.roll(-1, dims=1)
    labels_BL[:, -1] = -100
    labels_BL[0, :5] = -100
    return tokens_BL, labels_BL


def hugging_face_config(name: str, **changes: Any) -> Any:
    """A tiny model's configuration with ``changes``, as transformers reads it."""
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    config = json.loads(json.dumps(tiny_config(name, **changes)))
    return transformers.AutoConfig.for_model(config.pop("model_type"), **config)


def auto_class(name: str) -> Any:
    """What builds a tiny model in transformers."""
    import transformers

    tower = "text_config" in TINY[name]
    return transformers.AutoModelForImageTextToText if tower else transformers.AutoModelForCausalLM


def random_model(name: str, dtype: torch.dtype, **changes: Any) -> Any:
    """A tiny model of transformers in evaluation mode, every parameter of it random."""
    config = hugging_face_config(name, **changes)
    model = auto_class(name).from_config(config, dtype=dtype, **EAGER).eval()
    generator = torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for parameter in (*model.parameters(), *corrections(model)):
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_((noise * DEVIATION).to(dtype))
    return model


def corrections(model: Any) -> Iterator[torch.Tensor]:
    """What a model stores besides parameters."""
    return (buffer for name, buffer in model.named_buffers() if name.endswith("e_score_correction_bias"))


def loaded_model(name: str, folder: Path, dtype: torch.dtype) -> Any:
    """The tiny model with the weights of a folder, to which its configuration is added."""
    hugging_face_config(name).save_pretrained(folder)
    kind = auto_class(name)
    model, told = kind.from_pretrained(folder, dtype=dtype, **EAGER, output_loading_info=True)
    others = ("visual", "vision_tower", "multi_modal_projector", "_decay", "slope_rate")
    missing = [key for key in told["missing_keys"] if not any(other in key for other in others)]
    assert not missing, f"transformers misses {missing}"
    assert not told["unexpected_keys"], f"transformers does not know {told['unexpected_keys']}"
    return model.eval()


def loss_of(logits_BLV: torch.Tensor, labels_BL: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy over the labels that are not masked."""
    return functional.cross_entropy(logits_BLV.flatten(0, 1), labels_BL.flatten())


def shown(loss: torch.Tensor, logits_BLV: torch.Tensor) -> dict[str, Any]:
    """What is recorded of a model."""
    return {"loss": loss.item(), "logits": logits_BLV[1, list(SHOWN), :WORDS].tolist()}


def recorded(name: str) -> dict[str, Any]:
    """What transformers computes in double precision from our random tensors."""
    tokens_BL, labels_BL = tokens_and_labels()
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        save(folder, tiny(name), random_tensors(tiny(name), SEED, torch.float64, DEVIATION))
        with all_double():
            logits_BLV = loaded_model(name, Path(folder), torch.float64)(input_ids=tokens_BL).logits
            return shown(loss_of(logits_BLV, labels_BL), logits_BLV)


def stored_names(name: str) -> dict[str, list[int]]:
    """Name and shape of what transformers saves of the text model, of its layers the second."""
    with tempfile.TemporaryDirectory() as folder:
        random_model(name, torch.float32).save_pretrained(folder)
        stored = load_file(Path(folder) / "model.safetensors")
    shapes = {key: list(tensor.shape) for key, tensor in sorted(stored.items()) if "visual." not in key}
    return {
        key: shape for key, shape in shapes.items() if is_outer(key) or re.search(r"\b(layers|h)\.1\.", key)
    }


def is_outer(stored_name: str) -> bool:
    """Whether it is a tensor of embedding or head."""
    return not re.search(r"\.\d+\.", stored_name)


def recorded_with_encoder(name: str) -> dict[str, Any]:
    """What transformers computes in double precision from our random tensors of a model with an encoder."""
    batch, model = encoder_batch(name), encoder_model(name)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad(), all_double():
        save(folder, model, random_tensors(model, SEED, torch.float64, DEVIATION))
        theirs = transformers_model(name, torch.float64)
        theirs.config.save_pretrained(folder)
        loaded = type(theirs).from_pretrained(folder, dtype=torch.float64, attn_implementation="eager").eval()
        logits_BLV = transformers_logits(loaded, name, batch)
        return shown(loss_of(logits_BLV, batch.labels), logits_BLV)


def names_with_encoder(name: str) -> dict[str, list[int]]:
    """Name and shape of everything that transformers saves of a model with an encoder."""
    with tempfile.TemporaryDirectory() as folder:
        transformers_model(name, torch.float32).save_pretrained(folder)
        stored = load_file(Path(folder) / "model.safetensors")
    return {key: list(tensor.shape) for key, tensor in sorted(stored.items())}


def main() -> None:
    """Record every tiny model anew, and the names of each family."""
    import transformers

    # a tower's weights are recorded by the model that is the same without a tower
    models = {name: recorded(name) for name in TINY if name != "gemma3_text tower"}
    rows = ",\n".join(f"    {json.dumps(name)}: {json.dumps(row)}" for name, row in models.items())
    names = ",\n".join(f"    {json.dumps(name)}: {json.dumps(stored_names(name))}" for name in plain_names())
    parts = [f'  "transformers": "{transformers.__version__}"']
    sections = {"models": rows, "names": names}
    for key, record in (("encoder_models", recorded_with_encoder), ("encoder_names", names_with_encoder)):
        values = (f"    {json.dumps(name)}: {json.dumps(record(name))}" for name in ENCODER_MODELS)
        sections[key] = ",\n".join(values)
    parts += [f'  "{key}": {{\n{value}\n  }}' for key, value in sections.items()]
    text = "{\n" + ",\n".join(parts) + "\n}\n"
    GOLDEN.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
