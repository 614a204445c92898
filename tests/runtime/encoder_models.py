"""Tiny models with an encoder: T5 1.0 and 1.1, Qwen2.5-VL; their batches, and what transformers makes of them.

Grids are not square, windows at an edge are smaller than others, buckets are fewer than distances.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from tiny_models import SIZES, TEXT_TOKENS
from torch import Tensor

from meshwright.model.encoder import VisionEncoder
from meshwright.model.families.architecture_table import read_architecture
from meshwright.model.graph import ModelGraph
from meshwright.model.operators.blocks import build_graph
from meshwright.model.transforms.shrunk_model import shrunk_model
from meshwright.workload.images import Images

SEED = 17
SEQUENCES = 2
ENCODER_TOKENS = 31
DECODER_TOKENS = 24
TEXT = 13
"""Text tokens behind the images of a sequence."""
IMAGE_TOKEN = 95
T5 = {
    "model_type": "t5",
    "vocab_size": 97,
    "d_model": 48,
    "d_kv": 10,
    "d_ff": 80,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "num_heads": 4,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 20,
}
VISION = {
    "depth": 3,
    "hidden_size": 32,
    "intermediate_size": 20,
    "num_heads": 2,
    "out_hidden_size": 48,
    "patch_size": 2,
    "temporal_patch_size": 3,
    "window_size": 16,
    "fullatt_block_indexes": [1],
}
TEXT_TOWER = {
    **SIZES,
    "model_type": "qwen2_5_vl_text",
    "rope_parameters": {"rope_type": "default", "rope_theta": 100.0, "mrope_section": [1, 2, 3]},
}
VL = {
    "model_type": "qwen2_5_vl",
    "text_config": TEXT_TOWER,
    "vision_config": VISION,
    "image_token_id": IMAGE_TOKEN,
    "tie_word_embeddings": False,
}
OLDER_TEXT = {
    **SIZES,
    "rope_theta": 100.0,
    "rope_scaling": {"type": "mrope", "mrope_section": [3, 1, 2]},
}
ENCODER_MODELS: dict[str, dict[str, Any]] = {
    "t5": T5,
    "t5 1.1": {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "t5 gated silu": {**T5, "feed_forward_proj": "gated-silu", "relative_attention_num_buckets": 11},
    "qwen2_5_vl": VL,
    "qwen2_5_vl older keys": {
        **OLDER_TEXT,
        "model_type": "qwen2_5_vl",
        "vision_config": {
            **VISION,
            "in_channels": 1,
            "spatial_merge_size": 3,
            "window_size": 30,
            "fullatt_block_indexes": [],
        },
        "image_token_id": IMAGE_TOKEN,
        "tie_word_embeddings": True,
    },
}
IMAGES = {"qwen2_5_vl": Images(2, 140), "qwen2_5_vl older keys": Images(1, 315)}


@dataclass(frozen=True)
class EncoderBatch:
    """Sequences of a model with an encoder: token ids, next tokens, the encoder's input, and how images lie."""

    tokens: Tensor
    labels: Tensor
    encoder: Tensor
    images: Images | None = None

    @property
    def inputs(self) -> dict[str, Any]:
        """What the reference takes besides tokens and labels."""
        return {"encoder": self.encoder, "images": self.images}


@cache
def encoder_model(name: str) -> ModelGraph:
    """The graph of a tiny model."""
    return build_graph(read_architecture(ENCODER_MODELS[name], f"tiny {name}", "encoder_models.py"))


def small_encoder_model(name: str, layers: int, tp: int, seq_len: int) -> ModelGraph:
    """The graph of a still smaller one, whose widths ``tp`` divides."""
    whole = encoder_model(name)
    return shrunk_model(whole, layers=layers, tp=tp, seq_len=seq_len, full_seq_len=16 * seq_len)


def encoder_batch(
    name: str, images: Images | None = None, dtype: torch.dtype = torch.float64
) -> EncoderBatch:
    """Random sequences; token 0 pads in T5 and stands at the rows of images."""
    generator = torch.Generator().manual_seed(SEED)
    encoder = encoder_model(name).architecture.encoder
    if not isinstance(encoder, VisionEncoder):
        texts = (_words(generator, length) for length in (DECODER_TOKENS, ENCODER_TOKENS))
        tokens, seen = texts
        return EncoderBatch(tokens, _next(tokens, 0), seen)
    images = images or IMAGES[name]
    rows = images.patches // encoder.merged
    tokens = _words(generator, rows + TEXT)
    tokens[:, :rows] = 0
    size = (SEQUENCES, images.patches, encoder.patch_elements)
    patches = torch.randn(size, generator=generator, dtype=torch.float64).to(dtype)
    return EncoderBatch(tokens, _next(tokens, rows), patches, images)


def _words(generator: torch.Generator, length: int) -> Tensor:
    return torch.randint(1, TEXT_TOKENS, (SEQUENCES, length), generator=generator)


def _next(tokens: Tensor, rows: int) -> Tensor:
    """Next tokens, none of them a row of an image: the last row predicts the first word."""
    labels = tokens.roll(-1, dims=1)
    labels[:, -1] = -100
    labels[:, : max(0, rows - 1)] = -100
    labels[0, rows : rows + 3] = -100
    return labels


def transformers_model(name: str, dtype: torch.dtype) -> Any:
    """A tiny model of transformers in evaluation mode, every parameter of it random."""
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    config = transformers.AutoConfig.for_model(**ENCODER_MODELS[name])
    t5 = config.model_type == "t5"
    kind = transformers.AutoModelForSeq2SeqLM if t5 else transformers.AutoModelForImageTextToText
    model = kind.from_config(config, dtype=dtype, attn_implementation="eager").eval()
    if t5 and not encoder_model(name).architecture.tied_embeddings:
        untie(model)
    generator = torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_((noise * 0.2).to(dtype))
    return model


def untie(model: Any) -> None:
    """Give T5 1.1 its own head, as a checkpoint does: built from a configuration, transformers ties it."""
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    model.all_tied_weights_keys.pop("lm_head.weight")


def transformers_logits(model: Any, name: str, batch: EncoderBatch) -> Tensor:
    """The logits of every position."""
    if batch.images is None:
        return model(input_ids=batch.encoder, decoder_input_ids=batch.tokens).logits
    merge = model.config.vision_config.spatial_merge_size
    grid, rows = batch.images.grid(merge), batch.images.patches // merge**2
    ids = batch.tokens.clone()
    ids[:, :rows] = IMAGE_TOKEN
    order = processor_order(name, batch.images)
    pixels = batch.encoder.unflatten(1, (batch.images.per_sequence, -1))[:, :, order].flatten(0, 2)
    grids = torch.tensor([[1, *grid]] * (SEQUENCES * batch.images.per_sequence))
    positions = torch.cat(list(_positions(model.model, batch, grid, merge)), dim=1)
    return model(
        input_ids=ids,
        pixel_values=pixels,
        image_grid_thw=grids,
        position_ids=positions[:, None].expand(3, SEQUENCES, -1),
    ).logits


def _positions(model: Any, batch: EncoderBatch, grid: tuple[int, int], merge: int) -> Iterator[Tensor]:
    """transformers' positions, image by image: it takes neighbours without a word between them for one image."""
    assert batch.images is not None
    base = 0
    for _ in range(batch.images.per_sequence):
        yield model.get_vision_position_ids(base, torch.tensor([1, *grid]), 1, merge)
        base += max(grid) // merge
    text = batch.tokens.shape[1] - batch.images.patches // merge**2
    yield torch.arange(base, base + text).expand(3, -1)


def processor_order(name: str, images: Images) -> list[int]:
    """For each patch in the order of transformers' processor (squares line by line), its place in ours."""
    from transformers.vision_utils import get_vision_window_index

    vision = {"spatial_merge_size": 2, **ENCODER_MODELS[name]["vision_config"]}
    merge = vision["spatial_merge_size"]
    grid = torch.tensor([[1, *images.grid(merge)]])
    squares, _ = get_vision_window_index(grid, merge, vision["window_size"], vision["patch_size"])
    places = squares.argsort().tolist()
    return [place * merge**2 + patch for place in places for patch in range(merge**2)]
