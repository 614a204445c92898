"""Sum messages of independent buckets: deal buckets to ranks, sum decoded values there, and gather encoded sums."""

from collections.abc import Iterator

import torch

from meshwright.program.synchronisation.bucket_owners import BucketRun, bucket_runs
from meshwright.program.synchronisation.exchange_legs import ExchangeLeg
from meshwright.runtime.synchronisation.codecs.codec import CodecSetting, ScatteredCodec
from meshwright.runtime.synchronisation.draw_key import DrawKey
from meshwright.runtime.synchronisation.leg import Leg, Legs
from meshwright.runtime.synchronisation.message_fields import Message
from meshwright.runtime.synchronisation.pending_exchange import PendingExchange

SUM = "sum"
"""The purpose of random numbers that round sums."""


class ScatteredSum:
    """The sum of the encoded stretches of an exchange; each rank sums a run of buckets."""

    def __init__(self, codec: ScatteredCodec, setting: CodecSetting, ranks: int) -> None:
        self.codec = codec
        self.setting = setting
        elements = [(n, setting.stretches[n].elements, codec.bucket(n)) for n in setting.split.encoded]
        self.runs = bucket_runs(elements, ranks)
        self.sizes = [sum(map(self._bytes, runs)) for runs in self.runs]

    def encode(self, number: int, values: torch.Tensor, key: DrawKey) -> Message:
        """Return the message of a stretch."""
        return self.codec.encode(
            number, values, key.generator(self.setting.device, self.setting.stretches[number].name)
        )

    def decode(self, number: int, payload: torch.Tensor, key: DrawKey) -> torch.Tensor:
        """Return the values that a message holds."""
        return self.codec.decode(number, payload, self.setting.stretches[number].elements)

    def legs(self, pending: PendingExchange, planned: Iterator[ExchangeLeg]) -> Legs[dict[int, torch.Tensor]]:
        """Yield both legs, and return the sums by stretch."""
        own = self.runs[pending.key.rank]
        size = self.sizes[pending.key.rank]
        message = torch.cat([pending.messages[number] for number in self.setting.split.encoded])
        received = [size] * len(self.sizes)
        leg = next(planned)
        dealt = yield Leg(leg.kind, message, leg.logical_bytes, tuple(self.sizes), tuple(received))
        sums = self._summed(own, dealt.split(received), pending.weights)
        encoded = [self._encoded_sum(run, one, pending.key) for run, one in zip(own, sums, strict=True)]
        leg = next(planned)
        part = torch.cat(encoded) if encoded else message[:0]
        gathered = yield Leg(leg.kind, part, leg.logical_bytes, received=tuple(self.sizes))
        return self._all_stretches(gathered)

    def _bytes(self, run: BucketRun) -> int:
        return self.codec.payload_bytes(run.stretch, run.elements)

    def _decoded(self, runs: tuple[BucketRun, ...], payload: torch.Tensor) -> list[torch.Tensor]:
        parts = payload.split([self._bytes(run) for run in runs])
        return [
            self.codec.decode(run.stretch, part, run.elements) for run, part in zip(runs, parts, strict=True)
        ]

    def _summed(
        self, runs: tuple[BucketRun, ...], payloads: tuple[torch.Tensor, ...], weights: tuple[float, ...]
    ) -> list[torch.Tensor]:
        """Return the weighted sum of each run, added up in the order of ranks."""
        sums = [
            torch.zeros(run.elements, dtype=self.setting.real, device=self.setting.device) for run in runs
        ]
        for payload, weight in zip(payloads, weights, strict=True):
            for total, values in zip(sums, self._decoded(runs, payload), strict=True):
                total.add_(values, alpha=weight)
        return sums

    def _encoded_sum(self, run: BucketRun, total: torch.Tensor, key: DrawKey) -> torch.Tensor:
        draw = key.generator(self.setting.device, self.setting.stretches[run.stretch].name, SUM)
        return self.codec.encode(run.stretch, total, draw).payload

    def _all_stretches(self, gathered: torch.Tensor) -> dict[int, torch.Tensor]:
        parts: dict[int, list[torch.Tensor]] = {number: [] for number in self.setting.split.encoded}
        for runs, payload in zip(self.runs, gathered.split(self.sizes), strict=True):
            for run, values in zip(runs, self._decoded(runs, payload), strict=True):
                parts[run.stretch].append(values)
        return {number: torch.cat(found) for number, found in parts.items()}
