"""Shrink an encoder to small sizes with the same structure."""

from dataclasses import replace

from meshwright.model.encoder import Encoder, TextEncoder, VisionEncoder

LAYERS = 2
BUCKETS, MAX_DISTANCE = 8, 6
"""Few enough that short texts have positions in every bucket, logarithmic ones too."""
HEAD_DIM = 8
PATCH_ELEMENTS = 6
WINDOW = 4
"""Patches of a window's side."""


def shrunk_encoder(encoder: Encoder, tp: int, width: int) -> Encoder:
    """Return an encoder of few layers, whose ``width`` elements of a feed-forward layer are those of one tp rank."""
    if isinstance(encoder, TextEncoder):
        return replace(encoder, layers=LAYERS, buckets=BUCKETS, max_distance=MAX_DISTANCE)
    return replace(
        encoder,
        layers=LAYERS,
        heads=2 * tp,
        hidden=2 * tp * HEAD_DIM,
        intermediate=width * tp,
        patch_elements=PATCH_ELEMENTS,
        patch_shape=(),
        merge=2,
        window=WINDOW,
        whole_image=_kinds(encoder),
    )


def _kinds(encoder: VisionEncoder) -> tuple[bool, ...]:
    """Return one layer of each kind that the encoder has, in its order."""
    kinds = tuple(dict.fromkeys(encoder.whole_image))
    return (kinds * LAYERS)[:LAYERS]


def small_sections(sections: tuple[int, ...], pairs: int) -> tuple[int, ...]:
    """Return the pairs of a small head that turn with time, row and column: a quarter each for the latter two."""
    return (pairs - 2 * (pairs // 4), pairs // 4, pairs // 4) if sections else ()
