"""Read the shapes and arithmetic of Qwen2.5-VL (arXiv 2502.13923) from its configuration, vision tower included.

Keys and defaults are those of transformers 5.23. The text tower is read by
``model/families/dense_decoders.py``; a file without ``vision_config`` has nothing else.
"""

from dataclasses import replace
from math import inf

from meshwright.model.architecture import Architecture
from meshwright.model.encoder import VisionEncoder
from meshwright.model.families.config_fields import LARGEST_COUNT, Fields
from meshwright.model.families.dense_numerics import llama
from meshwright.model.families.rotary_fields import rope_mapping
from meshwright.model.numerics import Numerics

SECTIONS = "mrope_section"
WHOLE_IMAGE = "fullatt_block_indexes"
AXES = 3  # time, row, column


def vision_encoder(vision: Fields, arch: Architecture) -> VisionEncoder:
    """Read the vision tower of a decoder whose shapes have been read."""
    layers = vision.size("depth", most=LARGEST_COUNT)
    hidden, heads = vision.size("hidden_size"), vision.size("num_heads")
    _head_dim(vision, hidden, heads)
    side, merge = vision.size("patch_size", default=14), vision.size("spatial_merge_size", default=2)
    shape = (_channels(vision), vision.size("temporal_patch_size", default=2), side, side)
    activation = vision.text("hidden_act", default="silu")
    if activation != "silu":
        rule = "the vision tower's activation must be silu"
        vision.unsupported("hidden_act", activation, rule, '"hidden_act": "silu"')
    out = vision.size("out_hidden_size", default=3584)
    if vision.sound("out_hidden_size") and out != arch.hidden:
        rule = f"out_hidden_size = {out} must be the text's hidden_size = {arch.hidden}"
        vision.problem("out_hidden_size", out, rule, f'"out_hidden_size": {arch.hidden}')
    return VisionEncoder(
        layers=layers,
        hidden=hidden,
        heads=heads,
        intermediate=vision.size("intermediate_size"),
        patch_elements=shape[0] * shape[1] * side**2,
        patch_shape=shape,
        merge=merge,
        window=_window(vision, merge, side),
        whole_image=_whole_image(vision, layers),
        rope_theta=vision.mapping("rope_parameters").number("rope_theta", default=10000.0, positive=True),
    )


def qwen2_5_vl_numerics(fields: Fields, arch: Architecture) -> Numerics:
    """Read the text tower's arithmetic; with images, pairs of a head turn with time, row or column."""
    numerics = llama(fields, arch)
    if arch.encoder is None:
        return numerics
    return replace(numerics, rotary_sections=_sections(rope_mapping(fields), arch.head_dim // 2))


def _sections(rope: Fields, pairs: int) -> tuple[int, ...]:
    """Read how many pairs turn with time, with the row and with the column, by default 16, 24 and 24."""
    given = rope.items(SECTIONS, _is_count, "whole numbers >= 1")
    sections = tuple(given) if given is not None else (16, 24, 24)
    if rope.sound(SECTIONS) and (len(sections) != AXES or sum(sections) != pairs):
        terms = " + ".join(map(str, sections))
        rule = f"{SECTIONS} must be three numbers with the sum head_dim / 2: {terms} must be {pairs}"
        rope.unsupported(SECTIONS, list(sections), rule, "pairs for time, row and column")
    if rope.flag("mrope_interleaved", False):
        rule = "sections of Qwen2.5-VL are not interleaved"
        rope.unsupported("mrope_interleaved", True, rule, "use false")
    return sections


def _is_count(value: object) -> bool:
    return _is_whole(value, least=1)


def _is_whole(value: object, least: int, below: float = inf) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < below


def _head_dim(vision: Fields, hidden: int, heads: int) -> None:
    """Check that half of a head's pairs can turn with the row, half with the column."""
    if vision.sound("hidden_size", "num_heads") and hidden % (4 * heads):
        rule = f"hidden_size % (4 · num_heads) = {hidden} % {4 * heads} = {hidden % (4 * heads)}, must be 0"
        vision.problem("num_heads", heads, rule, "heads of a multiple of four elements")


def _channels(vision: Fields) -> int:
    """Read ``in_channels``; older files name it ``in_chans``, which transformers ignores."""
    channels = vision.size("in_channels", default=3)
    older = vision.size("in_chans") if vision.has("in_chans") else channels
    if vision.sound("in_channels", "in_chans") and older != channels:
        rule = f"in_chans = {older}, but transformers reads in_channels = {channels}"
        vision.unsupported("in_chans", older, rule, f'"in_channels": {older}, without in_chans')
    return channels


def _window(vision: Fields, merge: int, side: int) -> int:
    """Read ``window_size``, pixels, and return patches: as many whole merged squares as it holds."""
    pixels = vision.size("window_size", default=112)
    if vision.sound("window_size", "spatial_merge_size", "patch_size") and pixels < merge * side:
        rule = f"window_size = {pixels} must be >= spatial_merge_size · patch_size = {merge * side}"
        vision.problem("window_size", pixels, rule, f'"window_size": {merge * side * 4}')
    return pixels // merge // side * merge


def _whole_image(vision: Fields, layers: int) -> tuple[bool, ...]:
    """Read which layers attend to the whole image, by default every eighth up to layer 31."""
    most = layers if vision.sound("depth") else LARGEST_COUNT
    given = vision.items(WHOLE_IMAGE, lambda layer: _is_whole(layer, 0, most), f"layers in [0, {most})")
    chosen = {7, 15, 23, 31} if given is None else set(given)
    return tuple(layer in chosen for layer in range(layers))
