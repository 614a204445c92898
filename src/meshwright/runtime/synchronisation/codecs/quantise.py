"""Quantise: codes of 8 or 4 bits with scales, by bucket (QSDP, arXiv 2302.02390; 8-bit, arXiv 1511.04561).

With equal steps from the smallest to the largest value v of a bucket of L + 1 levels: code = round((v − min)·L/(max −
min)), decoded as min + code·(max − min)/L. With a table of numbers: the number nearest to v/scale, where the scale is
the largest magnitude. Stochastic rounding takes the upper of the two neighbours with the probability that makes the
mean v; there the scale of a table that reaches less far below zero is larger, so that every value has two neighbours.
"""

import torch

from meshwright.program.synchronisation.encoded_bytes import bucket_elements
from meshwright.program.synchronisation.quantised_formats import QUANTISED_FORMATS
from meshwright.runtime.synchronisation.codecs.codec import CodecSetting, States
from meshwright.runtime.synchronisation.message_fields import (
    BYTE_BITS,
    COUNTED_FLOAT_BYTES,
    Message,
    as_bytes,
    packed_codes,
    unpacked_codes,
)

NOISE = 2**12
"""By how many units in the last place a sum may differ that was added up in another order."""


def tie_width(dtype: torch.dtype) -> float:
    """Return the part of a step within which a value counts as half-way, and is rounded up.

    Sums of codes lie half-way quite often; the rounding of arithmetic must not decide there.
    """
    return NOISE * torch.finfo(dtype).eps


class Quantise:
    """The codec; it keeps nothing. A bucket's bytes are its scales, then its codes."""

    def __init__(self, setting: CodecSetting) -> None:
        self.setting = setting
        self.format = QUANTISED_FORMATS[str(setting.compression.quantise)]
        self.stochastic = setting.compression.rounding == "stochastic"
        self.codes = torch.tensor(self.format.codes, dtype=setting.real, device=setting.device)

    def states(self) -> States:
        """Return nothing."""
        return {}

    def bucket(self, number: int) -> int:
        """Return the elements of a bucket of a stretch."""
        return bucket_elements(self.setting.compression, self.setting.stretches[number].elements)

    def payload_bytes(self, number: int, elements: int) -> int:
        """Return the bytes that a run of buckets takes in memory."""
        whole, rest = divmod(elements, self.bucket(number))
        return whole * self._row_bytes(self.bucket(number)) + (self._row_bytes(rest) if rest else 0)

    def _code_bytes(self, elements: int) -> int:
        return -(-elements * self.format.bits // BYTE_BITS)

    def _row_bytes(self, elements: int) -> int:
        return self.format.scales * self.setting.real.itemsize + self._code_bytes(elements)

    def encode(self, number: int, values: torch.Tensor, draw: torch.Generator) -> Message:
        """Encode a run of buckets."""
        bucket = self.bucket(number)
        rows = self._rows(values, bucket)
        scales, codes = self._quantised(rows, draw)
        scale_bytes = as_bytes(scales).view(len(rows), -1)
        code_bytes = packed_codes(codes, self.format.bits)
        payload = torch.cat([scale_bytes, code_bytes], dim=1).flatten()
        payload = payload[: self.payload_bytes(number, values.numel())]  # the last bucket's codes are fewer
        counted = len(payload) - len(rows) * self.format.scales * (
            self.setting.real.itemsize - COUNTED_FLOAT_BYTES
        )
        return Message(payload, counted)

    def decode(self, number: int, payload: torch.Tensor, elements: int) -> torch.Tensor:
        """Return the values of a run of buckets."""
        bucket = self.bucket(number)
        row_bytes, scale_bytes = self._row_bytes(bucket), self.format.scales * self.setting.real.itemsize
        rows = torch.nn.functional.pad(payload, (0, -len(payload) % row_bytes)).view(-1, row_bytes)
        scales = rows[:, :scale_bytes].clone(memory_format=torch.contiguous_format).view(self.setting.real)
        codes = unpacked_codes(rows[:, scale_bytes:], self.format.bits, bucket)
        return self._values(scales, codes).flatten()[:elements]

    def _rows(self, values: torch.Tensor, bucket: int) -> torch.Tensor:
        """Return a row for each bucket; the last one is filled with its last value, which moves no extreme."""
        missing = -values.numel() % bucket
        return torch.cat([values, values[-1:].expand(missing)]).view(-1, bucket)

    def _quantised(self, rows: torch.Tensor, draw: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Return scales (buckets × 1 or 2) and codes (uint8)."""
        noise = None
        if self.stochastic:
            noise = torch.rand(rows.shape, generator=draw, dtype=rows.dtype, device=rows.device)
        return self._table_codes(rows, noise) if len(self.codes) else self._linear_codes(rows, noise)

    def _linear_codes(
        self, rows: torch.Tensor, noise: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        low, high = rows.aminmax(dim=1, keepdim=True)
        span = high - low
        levels = 2**self.format.bits - 1
        place = (rows - low) / torch.where(span == 0, 1, span) * levels
        rounded = (place + (0.5 + tie_width(place.dtype) if noise is None else noise)).floor()
        return torch.cat([low, high], dim=1), rounded.clamp(0, levels).to(torch.uint8)

    def _table_codes(
        self, rows: torch.Tensor, noise: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        table, code_of = self.codes.sort()
        scale = rows.abs().amax(dim=1, keepdim=True)
        if noise is not None:
            scale = scale / -table[0]
        relative = rows / torch.where(scale == 0, 1, scale)
        upper = torch.bucketize(relative, table).clamp(1, len(table) - 1)
        below, above = table[upper - 1], table[upper]
        share = (relative - below) / torch.where(above == below, 1, above - below)
        up = share >= 0.5 - tie_width(share.dtype) if noise is None else noise < share
        return scale, code_of[upper - 1 + up.long()].to(torch.uint8)

    def _values(self, scales: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
        if len(self.codes):
            return self.codes[codes] * scales
        low, high = scales[:, :1], scales[:, 1:]
        return low + (high - low) * (codes.to(self.setting.real) / (2**self.format.bits - 1))
