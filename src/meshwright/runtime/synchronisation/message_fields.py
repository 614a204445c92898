"""Messages: fields packed into bytes, which count what the plan counts.

Floats of fp32 and fp64 count 4 bytes, so that an fp64 proof counts the bytes of a run; other fields count their size.
"""

from dataclasses import dataclass

import torch

COUNTED_FLOAT_BYTES = 4
BYTE_BITS = 8
WIDE_INDEX_BYTES = torch.int64.itemsize
"""Bytes of an index in use; the wire carries its lower ones."""


@dataclass(frozen=True, slots=True)
class Message:
    """``payload``: the fields as uint8, one behind the other; ``counted_bytes`` as the module's text has it."""

    payload: torch.Tensor
    counted_bytes: int


def packed(*fields: torch.Tensor) -> Message:
    """Return the message of some fields."""
    counted = sum(one.numel() * counted_width(one.dtype) for one in fields)
    return Message(torch.cat([as_bytes(one) for one in fields]), counted)


def counted_width(dtype: torch.dtype) -> int:
    """Return the bytes that an element counts."""
    return min(dtype.itemsize, COUNTED_FLOAT_BYTES) if dtype.is_floating_point else dtype.itemsize


def as_bytes(field: torch.Tensor) -> torch.Tensor:
    """Return a field as a flat tensor of uint8."""
    return field.contiguous().flatten().view(torch.uint8)


class FieldReader:
    """A message's fields, read in order."""

    def __init__(self, payload: torch.Tensor) -> None:
        self.payload = payload
        self.position = 0

    def take(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        """Return the next field."""
        start = self.position
        self.position += elements * dtype.itemsize
        return self.payload[start : self.position].clone().view(dtype)  # the copy is aligned


def packed_codes(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Return codes of some bits, uint8 in the last dim, packed into bytes; the last byte is filled with zeros."""
    each = BYTE_BITS // bits
    padded = torch.nn.functional.pad(codes, (0, -codes.shape[-1] % each))
    grouped = padded.unflatten(-1, (-1, each))
    return (grouped << _shifts(bits, codes.device)).sum(-1, dtype=torch.uint8)


def unpacked_codes(packed_bytes: torch.Tensor, bits: int, elements: int) -> torch.Tensor:
    """Return the first ``elements`` codes of the last dim, as int64."""
    shifted = packed_bytes.unsqueeze(-1) >> _shifts(bits, packed_bytes.device)
    return (shifted & (2**bits - 1)).flatten(-2)[..., :elements].long()


def _shifts(bits: int, device: torch.device) -> torch.Tensor:
    return torch.arange(0, BYTE_BITS, bits, dtype=torch.uint8, device=device)


def index_field(indices: torch.Tensor, width: int) -> torch.Tensor:
    """Return the lower ``width`` bytes of int64 indices, flat."""
    return as_bytes(indices).view(-1, WIDE_INDEX_BYTES)[:, :width].flatten()


def read_indices(field: torch.Tensor, width: int) -> torch.Tensor:
    """Return the int64 indices of a field."""
    wide = torch.nn.functional.pad(field.view(-1, width), (0, WIDE_INDEX_BYTES - width))
    return wide.contiguous().view(torch.int64).flatten()
