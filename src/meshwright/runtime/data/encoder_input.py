"""The input of a model's encoder: a second text, or the patches of images (``workload/images.py``).

A sequence begins with the rows that its images become. No token stands there: ids are 0, and no label names one, so
that the last image row predicts the first token of the text.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.model.encoder import Encoder, VisionEncoder
from meshwright.runtime.data.sequence_windows import NO_LABEL
from meshwright.workload.encoder_lengths import EncoderLengths
from meshwright.workload.images import Images

Ids = Any
"""An array or a tensor (sequences, positions)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderInput:
    """Size of an encoder's input for each sequence: ``tokens`` ids, or as many patches of ``elements`` numbers.

    ``rows`` are the rows of the decoder's input that ``images`` become.
    """

    tokens: int
    elements: int = 0
    rows: int = 0
    images: Images | None = None

    @property
    def identity(self) -> dict[str, object]:
        """The key of a plan's workload that sets it, with its value."""
        return {"encoder_tokens": self.tokens} if self.images is None else {"images": str(self.images)}

    def empty(self, sequences: int) -> NDArray[np.int64] | NDArray[np.float32]:
        """Return an array for the input of so many sequences: token ids, or patches in float32."""
        if self.elements:
            return np.empty((sequences, self.tokens, self.elements), np.float32)
        return np.empty((sequences, self.tokens), np.int64)


def encoder_input(encoder: Encoder | None, lengths: EncoderLengths) -> EncoderInput | None:
    """Return the input of an encoder with these lengths; None without an encoder."""
    if encoder is None:
        return None
    if isinstance(encoder, VisionEncoder):
        assert lengths.images is not None
        rows = lengths.images.rows(encoder.merge)
        return EncoderInput(
            tokens=lengths.tokens, elements=encoder.patch_elements, rows=rows, images=lengths.images
        )
    return EncoderInput(tokens=lengths.tokens)


def blank_image_rows(tokens: Ids, labels: Ids, rows: int) -> None:
    """Set the token ids of the first ``rows`` positions to 0, and drop the labels that would name one of them."""
    tokens[:, :rows] = 0
    labels[:, : max(0, rows - 1)] = NO_LABEL
