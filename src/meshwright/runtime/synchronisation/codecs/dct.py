"""The largest coefficients of a discrete cosine transform of each chunk (DeMo, arXiv 2411.19870).

m ← β·m + v; the orthonormal DCT-II of each chunk of m; the ``keep`` coefficients of largest magnitude are sent, and
their inverse transform is taken out of m. With keep = chunk all of m is sent, and what is left is rounding.
"""

from functools import lru_cache
from math import pi

import torch

from meshwright.program.synchronisation.kept_counts import chunk_counts, index_bytes
from meshwright.runtime.synchronisation.codecs.codec import CodecSetting, States
from meshwright.runtime.synchronisation.draw_key import DrawKey
from meshwright.runtime.synchronisation.message_fields import (
    FieldReader,
    Message,
    index_field,
    packed,
    read_indices,
)


@lru_cache(maxsize=32)
def transform(length: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return the orthonormal DCT-II as a matrix: rows are frequencies."""
    frequency = torch.arange(length, dtype=torch.float64)[:, None]
    place = torch.arange(length, dtype=torch.float64)[None, :]
    matrix = torch.cos(pi / length * (place + 0.5) * frequency) * (2 / length) ** 0.5
    matrix[0] /= 2**0.5
    return matrix.to(device, dtype)


class Dct:
    """The codec; it keeps the momentum m of each stretch."""

    def __init__(self, setting: CodecSetting) -> None:
        self.setting = setting
        options = setting.compression.dct
        assert options is not None
        self.chunk, self.keep, self.decay = int(options.chunk), int(options.keep), float(options.momentum)
        self.momentum = setting.zeros()

    def states(self) -> States:
        """Return the momentum of each stretch."""
        return {f"momentum.{name}": self.momentum[number] for number, name in self.setting.named.items()}

    def encode(self, number: int, values: torch.Tensor, key: DrawKey) -> Message:
        """Return the largest coefficients of the momentum and their places, and take them out of it."""
        momentum = self.momentum[number].mul_(self.decay).add_(values)
        parts = [self._largest(chunks) for chunks in self._chunks(momentum)]
        kept = torch.cat([kept.flatten() for kept, _ in parts]).to(self.setting.kept)
        places = torch.cat([places.flatten() for _, places in parts])
        message = packed(kept, index_field(places, index_bytes(self.chunk)))
        momentum.sub_(self.decode(number, message.payload, key))
        return message

    def decode(self, number: int, payload: torch.Tensor, key: DrawKey) -> torch.Tensor:
        """Return the inverse transform of the coefficients that were sent."""
        elements = self.setting.stretches[number].elements
        whole, rest, kept = chunk_counts(elements, self.chunk, self.keep)
        width = index_bytes(self.chunk)
        fields = FieldReader(payload)
        values = fields.take(kept, self.setting.kept).to(self.setting.real)
        places = read_indices(fields.take(kept * width, torch.uint8), width)
        split = whole * min(self.keep, self.chunk)
        body = self._inverse(values[:split], places[:split], whole, self.chunk)
        tail = self._inverse(values[split:], places[split:], 1, rest) if rest else body[:0]
        return torch.cat([body, tail])

    def _chunks(self, values: torch.Tensor) -> list[torch.Tensor]:
        """Return whole chunks as rows, and the shorter last one."""
        whole = values.numel() // self.chunk * self.chunk
        parts = [values[:whole].view(-1, self.chunk), values[whole:].view(1, -1)]
        return [part for part in parts if part.numel()]

    def _largest(self, chunks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        coefficients = chunks @ transform(chunks.shape[1], chunks.dtype, chunks.device).mT
        places = coefficients.abs().topk(min(self.keep, chunks.shape[1]), dim=1).indices
        return coefficients.gather(1, places), places

    def _inverse(self, values: torch.Tensor, places: torch.Tensor, chunks: int, length: int) -> torch.Tensor:
        coefficients = torch.zeros(chunks, length, dtype=values.dtype, device=values.device)
        if chunks:
            coefficients.scatter_(1, places.view(chunks, -1), values.view(chunks, -1))
        return (coefficients @ transform(length, values.dtype, values.device)).flatten()
