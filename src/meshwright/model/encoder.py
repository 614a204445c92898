"""The encoders that a decoder may read: T5's over a second text, Qwen2.5-VL's over the patches of images.

An encoder's layers come before the decoder's, on the stage of the embedding. What they are is here, free of any
framework's spelling; ``model/operators/encoder_layers.py`` and ``model/operators/encoder_input_output.py`` make
operators of it.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TextEncoder:
    """The encoder of T5 (arXiv 1910.10683, section 2.1): layers as wide as the decoder's, without a causal mask.

    Every decoder layer attends to its result. Attention adds a learned score for each head and relative position, of
    which there are ``buckets``, logarithmic up to ``max_distance``; one table serves all layers of the encoder, and
    another one all layers of the decoder.
    """

    layers: int
    buckets: int
    max_distance: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionEncoder:
    """The vision tower of Qwen2.5-VL (arXiv 2502.13923, section 2.1): layers over patches of images.

    A patch is ``patch_elements`` numbers, embedded by one matrix; ``patch_shape`` (channels, frames, height, width) is
    their shape in checkpoints, empty: unknown. Layer i attends
    within an image if ``whole_image[i]``, else within windows of ``window`` × ``window`` patches. ``merge`` × ``merge``
    neighbouring patches become one row of the decoder's input, through a matrix of as many rows and columns, an exact
    GELU and a second matrix. Heads are rotated by row and column with base ``rope_theta``.
    """

    layers: int
    hidden: int
    heads: int
    intermediate: int
    patch_elements: int
    patch_shape: tuple[int, ...] = ()
    merge: int
    window: int
    whole_image: tuple[bool, ...]
    rope_theta: float = 10000.0
    norm_epsilon: float = 1e-6

    @property
    def head_dim(self) -> int:
        """Elements of a head."""
        return self.hidden // self.heads

    @property
    def merged(self) -> int:
        """Patches of one row of the decoder's input."""
        return self.merge**2


Encoder = TextEncoder | VisionEncoder
