"""Qwen2.5-VL's vision tower (arXiv 2502.13923): rows of the decoder's input from the patches of images.

Attention has a mask over all patches of a sequence: a patch sees its image's, or those of its window. Places of
patches and positions of tokens are listed from their definition. Sizes: B sequences, P patches, E elements of a patch,
D hidden of the tower, H heads, N elements of a head, R rows of the decoder's input, L positions.
"""

from collections.abc import Mapping
from itertools import product

import torch
from torch import Tensor

from meshwright.model.encoder import VisionEncoder
from meshwright.runtime.reference.elementwise import ACTIVATIONS, linear, normed
from meshwright.workload.images import Images

Place = tuple[int, int, int]
"""Window, row and column of a patch in its image."""


def encoded_images(
    encoder: VisionEncoder, images: Images, tensors: Mapping[str, Tensor], patches_BPE: Tensor
) -> Tensor:
    """Return the rows that replace the first tokens of each sequence, image by image, each line by line."""
    places = patch_places(encoder, images)
    x_BPD = linear(tensors, "embed.patch_embed", patches_BPE)
    for layer in range(encoder.layers):
        unit = f"encoder.{layer}"
        n_BPD = _norm(encoder, tensors, f"{unit}.input_layernorm", x_BPD)
        x_BPD = x_BPD + _attended(encoder, images, tensors, layer, n_BPD)
        n_BPD = _norm(encoder, tensors, f"{unit}.post_attention_layernorm", x_BPD)
        x_BPD = x_BPD + _fed_forward(tensors, f"{unit}.mlp", n_BPD)
    merged = _norm(encoder, tensors, "encoder_end.norm", x_BPD).unflatten(1, (-1, encoder.merged)).flatten(2)
    merged = ACTIVATIONS["gelu"](linear(tensors, "encoder_end.up_proj", merged))
    rows_BRD = linear(tensors, "encoder_end.down_proj", merged)
    squares = [(row, column) for _, row, column in places[:: encoder.merged]]
    order = sorted(range(len(squares)), key=squares.__getitem__)
    return rows_BRD.unflatten(1, (images.per_sequence, -1))[:, :, order].flatten(1, 2)


def patch_places(encoder: VisionEncoder, images: Images) -> list[Place]:
    """Return the places of an image's patches: windows line by line, in them squares, in those patches."""
    height, width = images.grid(encoder.merge)
    side, merge, places = encoder.window, encoder.merge, list[Place]()
    tops = product(range(0, height, side), range(0, width, side))
    for window, (top, left) in enumerate(tops):
        bottom, right = min(top + side, height), min(left + side, width)
        for row, column in product(range(top, bottom, merge), range(left, right, merge)):
            places += [(window, row + i, column + j) for i, j in product(range(merge), repeat=2)]
    return places


def image_positions(encoder: VisionEncoder, images: Images, length: int) -> Tensor:
    """Return time, row and column of each of ``length`` positions, (L, 3): images, then text from the next number."""
    height, width = (side // encoder.merge for side in images.grid(encoder.merge))
    found, base = list[Place](), 0
    for _ in range(images.per_sequence):
        found += [(base, base + row, base + column) for row in range(height) for column in range(width)]
        base += max(height, width)
    text = range(base, base + length - len(found))
    return torch.tensor(found + [(place, place, place) for place in text])


def section_positions(sections: tuple[int, ...], positions_L3: Tensor) -> Tensor:
    """Return the position that each pair of a head turns with, (L, pairs)."""
    axes = [axis % 3 for axis, pairs in enumerate(sections) for _ in range(pairs)]
    return positions_L3[:, axes]


def _norm(encoder: VisionEncoder, tensors: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
    return normed(x, centred=False, epsilon=encoder.norm_epsilon) * tensors[f"{name}.weight"]


def _fed_forward(tensors: Mapping[str, Tensor], name: str, x_BPD: Tensor) -> Tensor:
    gate = ACTIVATIONS["silu"](linear(tensors, f"{name}.gate_proj", x_BPD))
    return linear(tensors, f"{name}.down_proj", gate * linear(tensors, f"{name}.up_proj", x_BPD))


def _attended(
    encoder: VisionEncoder, images: Images, tensors: Mapping[str, Tensor], layer: int, x_BPD: Tensor
) -> Tensor:
    name, places = f"encoder.{layer}.self_attn", patch_places(encoder, images)
    q_BPHN, k_BPHN, v_BPHN = (
        linear(tensors, f"{name}.{which}_proj", x_BPD).unflatten(2, (encoder.heads, -1)) for which in "qkv"
    )
    q_BPHN, k_BPHN = (_turned(encoder, places * images.per_sequence, x) for x in (q_BPHN, k_BPHN))
    scores_BHPP = torch.einsum("bihn,bjhn->bhij", q_BPHN, k_BPHN) * encoder.head_dim**-0.5
    groups = [
        (image, None if encoder.whole_image[layer] else window)
        for image in range(images.per_sequence)
        for window, _, _ in places
    ]
    apart_PP = torch.tensor([[one != other for other in groups] for one in groups])
    weights_BHPP = scores_BHPP.masked_fill(apart_PP, -torch.inf).softmax(dim=-1)
    y_BPHN = torch.einsum("bhij,bjhn->bihn", weights_BHPP, v_BPHN)
    return linear(tensors, f"{name}.o_proj", y_BPHN.flatten(2))


def _turned(encoder: VisionEncoder, places: list[Place], x_BPHN: Tensor) -> Tensor:
    """Rotate pairs (i, i + N/2): the first N/4 by the row, the others by the column, each from frequency 1 down."""
    quarter = encoder.head_dim // 4
    frequencies = [encoder.rope_theta ** (-pair / quarter) for pair in range(quarter)]
    angles = [[place * f for place in (row, column) for f in frequencies] for _, row, column in places]
    angle_PN = torch.tensor(angles, dtype=torch.float64)[:, None]
    cos, sin = (f(angle_PN).to(x_BPHN.dtype) for f in (torch.cos, torch.sin))
    a, b = x_BPHN.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)
