"""Sum buffers that are linear in the values by all-reduces, together with stretches that are sent as they are.

Values that are cast are rounded before and behind a sum, which itself is wide.
"""

from collections.abc import Iterator, Mapping

import torch

from meshwright.program.synchronisation.exchange_legs import ExchangeLeg
from meshwright.runtime.synchronisation.codecs.codec import CodecSetting, ReducedCodec
from meshwright.runtime.synchronisation.codecs.uncompressed import Uncompressed
from meshwright.runtime.synchronisation.leg import Leg, Legs
from meshwright.runtime.synchronisation.pending_exchange import PendingExchange

Buffers = dict[int, torch.Tensor]


class ReducedSum:
    """The sums of an exchange that all-reduces bring: those of ``codec``, if it is such, and of whole stretches."""

    def __init__(self, codec: ReducedCodec | None, setting: CodecSetting) -> None:
        self.codec = codec
        self.whole = Uncompressed(setting)
        self.setting = setting

    def begin(self, number: int, values: torch.Tensor, pending: PendingExchange, keeps_values: bool) -> None:
        """Add a stretch to what is pending."""
        codec = self._codec_of(number)
        pending.buffers[number] = codec.first(number, values, pending.key)
        if codec.needs_values or keeps_values:
            pending.values[number] = values

    def legs(self, pending: PendingExchange, planned: Iterator[ExchangeLeg]) -> Legs[Buffers]:
        """Yield one leg or two, and return the sums by stretch."""
        weight = pending.weights[pending.key.rank]
        first = yield from self._round(pending.buffers, weight, planned)
        seconds: Buffers = {}
        for number, total in first.items():
            buffer = self._codec_of(number).second(number, pending.values.get(number, total), total)
            if buffer is not None:
                seconds[number] = buffer
        second = (yield from self._round(seconds, weight, planned)) if seconds else {}
        totals = {n: [total, *([second[n]] if n in second else [])] for n, total in first.items()}
        return {n: self._codec_of(n).decode(n, found, pending.key) for n, found in totals.items()}

    def _codec_of(self, number: int) -> ReducedCodec:
        return self.codec if self.codec and number in self.setting.split.encoded else self.whole

    def _round(
        self, buffers: Mapping[int, torch.Tensor], weight: float, planned: Iterator[ExchangeLeg]
    ) -> Legs[Buffers]:
        weighted = [self._rounded(number, one * weight) for number, one in buffers.items()]
        leg = next(planned)
        total = yield Leg(leg.kind, torch.cat(weighted), leg.logical_bytes)
        sums = total.split([len(one) for one in weighted])
        return {number: self._rounded(number, one) for number, one in zip(buffers, sums, strict=True)}

    def _rounded(self, number: int, values: torch.Tensor) -> torch.Tensor:
        cast = self.setting.kept
        if cast == self.setting.real or number not in self.setting.split.encoded:
            return values
        return values.to(cast).to(self.setting.real)
