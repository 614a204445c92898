"""The interface of codecs, by the transport of their messages (``program/synchronisation/exchange_legs.py``).

A codec is made for the stretches of one exchange, and refers to them by their number. Values are flat, in ``real``:
fp64 in fp64 runs, else fp32. What it keeps between exchanges are named states, which change in place.
"""

from collections.abc import Sequence
from typing import Protocol

import torch

from meshwright.plans.synchronisation.compression import Compression
from meshwright.program.synchronisation.exchange_legs import SplitStretches, split_stretches
from meshwright.program.synchronisation.stretch import Stretch
from meshwright.runtime.synchronisation.draw_key import DrawKey
from meshwright.runtime.synchronisation.message_fields import Message

CAST_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
States = dict[str, torch.Tensor]


class CodecSetting:
    """The stretches of an exchange, their codec's options, and where and in which dtype it computes.

    ``seed`` gives states that start from random numbers, equal on all ranks.
    """

    def __init__(
        self,
        compression: Compression,
        stretches: Sequence[Stretch],
        dtype: torch.dtype,
        device: torch.device,
        seed: int = 0,
    ) -> None:
        self.compression = compression
        self.stretches = tuple(stretches)
        self.real = torch.float64 if dtype == torch.float64 else torch.float32
        self.device = device
        self.seed = seed
        self.split: SplitStretches = split_stretches(compression, stretches)

    @property
    def kept(self) -> torch.dtype:
        """The dtype of values that the codec keeps."""
        cast = self.compression.cast
        return self.real if cast is None else CAST_DTYPES[cast]

    @property
    def named(self) -> dict[int, str]:
        """The names of encoded stretches by number."""
        return {number: self.stretches[number].name for number in self.split.encoded}

    def zeros(self) -> dict[int, torch.Tensor]:
        """Return zeros for each encoded stretch by number."""
        return {number: self.zeros_of(number) for number in self.split.encoded}

    def zeros_of(self, number: int) -> torch.Tensor:
        """Return zeros for a stretch."""
        return torch.zeros(self.stretches[number].elements, dtype=self.real, device=self.device)


class Codec(Protocol):
    """Anything that encodes; it is made from a ``CodecSetting``."""

    def __init__(self, setting: CodecSetting) -> None: ...

    def states(self) -> States:
        """Return the live tensors that a checkpoint saves, by name."""


class ScatteredCodec(Codec, Protocol):
    """A codec whose buckets are encoded independently of each other.

    Payloads are the buckets in order, so a run of buckets is a run of bytes; ``elements`` are those of such a run.
    """

    def bucket(self, number: int) -> int:
        """Return the elements of a bucket of a stretch."""

    def payload_bytes(self, number: int, elements: int) -> int:
        """Return the bytes that a run of buckets takes in memory."""

    def encode(self, number: int, values: torch.Tensor, draw: torch.Generator) -> Message:
        """Encode a run of buckets."""

    def decode(self, number: int, payload: torch.Tensor, elements: int) -> torch.Tensor:
        """Return the values of a run of buckets."""


class GatheredCodec(Codec, Protocol):
    """A codec whose messages all ranks decode."""

    def encode(self, number: int, values: torch.Tensor, key: DrawKey) -> Message:
        """Encode a stretch, and take what is sent from the codec's momentum if it has one."""

    def decode(self, number: int, payload: torch.Tensor, key: DrawKey) -> torch.Tensor:
        """Return the values of the stretch that the rank of ``key`` encoded."""


class ReducedCodec(Codec, Protocol):
    """A codec with one or two buffers that are linear in the values, and summed over ranks.

    ``needs_values``: the values are used again behind the first sum.
    """

    needs_values: bool

    def first(self, number: int, values: torch.Tensor, key: DrawKey) -> torch.Tensor:
        """Return the flat buffer of the first round."""

    def second(self, number: int, values: torch.Tensor, total: torch.Tensor) -> torch.Tensor | None:
        """Return the flat buffer of the second round; ``total``, the first one's sum, may change in place."""

    def decode(self, number: int, totals: Sequence[torch.Tensor], key: DrawKey) -> torch.Tensor:
        """Return the sum of all ranks' values, from the rounds' totals."""
