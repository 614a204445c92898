"""Encoded exchanges of what sharding cuts: reduce-scatters of gradients, and all-gathers of parameters (QSDP).

Every stretch is a tensor's part in the shard of one rank. In a reduction each rank encodes the shards of all, and each
owner adds up what it gets, in the order of ranks; in a gather each rank encodes its own shard. Stretches outside the
codec's ``layers`` travel as they are, in the same message. arXiv 2302.02390, algorithms 1 and 2.
"""

from collections.abc import Sequence

import torch

from meshwright.plans.synchronisation.compression import Compression
from meshwright.program.pass_items import Collective
from meshwright.program.synchronisation.encoded_bytes import codec_name
from meshwright.program.synchronisation.exchange_legs import TRANSPORTS
from meshwright.program.synchronisation.stretch import Stretch
from meshwright.runtime.synchronisation.codecs import CODECS
from meshwright.runtime.synchronisation.codecs.codec import (
    CodecSetting,
    GatheredCodec,
    ReducedCodec,
    ScatteredCodec,
    States,
)
from meshwright.runtime.synchronisation.draw_key import DrawKey
from meshwright.runtime.synchronisation.leg import Leg, Legs
from meshwright.runtime.synchronisation.message_fields import as_bytes


class EncodedShards:
    """One rank's side of the exchanges of a unit that several ranks share."""

    def __init__(
        self,
        compression: Compression,
        shards: Sequence[Sequence[Stretch]],
        own: int,
        dtype: torch.dtype,
        device: torch.device,
        seed: int = 0,
    ) -> None:
        every = [stretch for shard in shards for stretch in shard]
        self.setting = CodecSetting(compression, every, dtype, device, seed)
        name = codec_name(compression)
        self.transport, self.codec = TRANSPORTS[name], CODECS[name](self.setting)
        ends = [sum(map(len, shards[: part + 1])) for part in range(len(shards))]
        self.numbers = [range(end - len(shard), end) for end, shard in zip(ends, shards, strict=True)]
        self.own = own
        self.encoded = frozenset(self.setting.split.encoded)
        feeds_back = compression.error_feedback and not compression.momentum
        self.residual = self.setting.zeros() if feeds_back else {}

    def states(self) -> States:
        """Return the live tensors that a checkpoint saves, by name."""
        named = self.setting.named
        return self.codec.states() | {f"residual.{named[n]}": one for n, one in self.residual.items()}

    def reduce(
        self, item: Collective, values: Sequence[torch.Tensor], key: DrawKey
    ) -> Legs[list[torch.Tensor]]:
        """Send every shard to its owner, and return the sums of the own one. ``values``: all shards' stretches."""
        messages = [self._message(number, one, key) for number, one in enumerate(values)]
        parts = [_together([messages[n] for n in numbers], messages) for numbers in self.numbers]
        sizes = [len(messages[number]) for number in self.numbers[self.own]]
        received = [sum(sizes)] * len(self.numbers)
        leg = Leg(
            item.kind,
            _together(parts, messages),
            int(item.logical_bytes),
            tuple(map(len, parts)),
            tuple(received),
        )
        payloads = (yield leg).split(received)
        return [
            self._sum(number, [payload.split(sizes)[place] for payload in payloads], key)
            for place, number in enumerate(self.numbers[self.own])
        ]

    def gather(
        self, item: Collective, values: Sequence[torch.Tensor], key: DrawKey
    ) -> Legs[list[torch.Tensor]]:
        """Send the own shard's stretches, and return those of all shards as they are decoded."""
        messages = [
            self._message(number, one, key)
            for number, one in zip(self.numbers[self.own], values, strict=True)
        ]
        sizes = [[self._size(number) for number in numbers] for numbers in self.numbers]
        totals = [sum(of) for of in sizes]
        part = (
            torch.cat(messages) if messages else torch.zeros(0, dtype=torch.uint8, device=self.setting.device)
        )
        leg = Leg(item.kind, part, int(item.logical_bytes), received=tuple(totals))
        payloads = (yield leg).split(totals)
        return [
            self._decoded(number, payload, key.of_rank(rank))
            for rank, numbers in enumerate(self.numbers)
            for number, payload in zip(numbers, payloads[rank].split(sizes[rank]), strict=True)
        ]

    def roundtrip(self, number: int, values: torch.Tensor, key: DrawKey) -> torch.Tensor:
        """Return a stretch as it is after it was encoded."""
        return self._decoded(number, self._message(number, values, key), key)

    def _message(self, number: int, values: torch.Tensor, key: DrawKey) -> torch.Tensor:
        """Return the bytes of a stretch, and keep what they do not hold."""
        real = values.to(self.setting.real)
        if number not in self.encoded:
            return as_bytes(real)
        if number in self.residual:
            real = real + self.residual[number]
        payload = self._encode(number, real, key)
        if number in self.residual:
            self.residual[number].copy_(real - self._decoded(number, payload, key))
        return payload

    def _encode(self, number: int, values: torch.Tensor, key: DrawKey) -> torch.Tensor:
        if self.transport == "scattered":
            scattered: ScatteredCodec = self.codec  # type: ignore[assignment]
            name = self.setting.stretches[number].name
            return scattered.encode(number, values, key.generator(self.setting.device, name)).payload
        if self.transport == "gathered":
            gathered: GatheredCodec = self.codec  # type: ignore[assignment]
            return gathered.encode(number, values, key).payload
        reduced: ReducedCodec = self.codec  # type: ignore[assignment]
        return as_bytes(reduced.first(number, values, key))

    def _decoded(self, number: int, payload: torch.Tensor, key: DrawKey) -> torch.Tensor:
        if number not in self.encoded:
            return payload.clone().view(self.setting.real)
        if self.transport == "scattered":
            scattered: ScatteredCodec = self.codec  # type: ignore[assignment]
            return scattered.decode(number, payload, self.setting.stretches[number].elements)
        if self.transport == "gathered":
            gathered: GatheredCodec = self.codec  # type: ignore[assignment]
            return gathered.decode(number, payload, key)
        reduced: ReducedCodec = self.codec  # type: ignore[assignment]
        return reduced.decode(number, [payload.clone().view(self.setting.real)], key)

    def _sum(self, number: int, payloads: Sequence[torch.Tensor], key: DrawKey) -> torch.Tensor:
        """Return the sum of all ranks' messages of a stretch; linear codecs are decoded once, from the sum."""
        if number in self.encoded and self.transport == "reduced":
            total = sum(payload.clone().view(self.setting.real) for payload in payloads)
            reduced: ReducedCodec = self.codec  # type: ignore[assignment]
            return reduced.decode(number, [total], key)  # type: ignore[list-item]
        total = self.setting.zeros_of(number)
        for rank, payload in enumerate(payloads):
            total += self._decoded(number, payload, key.of_rank(rank))
        return total

    def _size(self, number: int) -> int:
        """Return the bytes of a stretch's message in memory."""
        elements = self.setting.stretches[number].elements
        if number not in self.encoded:
            return elements * self.setting.real.itemsize
        assert self.transport == "scattered", "a gather knows the size of messages of other ranks"
        scattered: ScatteredCodec = self.codec  # type: ignore[assignment]
        return scattered.payload_bytes(number, elements)


def _together(parts: Sequence[torch.Tensor], like: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat(list(parts)) if parts else like[0][:0]
