"""Sum messages that all ranks gather: each decodes all of them and adds them up in the order of ranks."""

from collections.abc import Iterator

import torch

from meshwright.program.synchronisation.exchange_legs import ExchangeLeg
from meshwright.runtime.synchronisation.codecs.codec import CodecSetting, GatheredCodec
from meshwright.runtime.synchronisation.draw_key import DrawKey
from meshwright.runtime.synchronisation.leg import Leg, Legs
from meshwright.runtime.synchronisation.message_fields import Message
from meshwright.runtime.synchronisation.pending_exchange import PendingExchange


class GatheredSum:
    """The sum of the encoded stretches of an exchange."""

    def __init__(self, codec: GatheredCodec, setting: CodecSetting, ranks: int) -> None:
        self.codec = codec
        self.setting = setting
        self.ranks = ranks

    def encode(self, number: int, values: torch.Tensor, key: DrawKey) -> Message:
        """Return the message of a stretch."""
        return self.codec.encode(number, values, key)

    def decode(self, number: int, payload: torch.Tensor, key: DrawKey) -> torch.Tensor:
        """Return the values that a message of the key's rank holds."""
        return self.codec.decode(number, payload, key)

    def legs(self, pending: PendingExchange, planned: Iterator[ExchangeLeg]) -> Legs[dict[int, torch.Tensor]]:
        """Yield the leg, and return the sums by stretch."""
        numbers = self.setting.split.encoded
        message = torch.cat([pending.messages[number] for number in numbers])
        received = [len(message)] * self.ranks
        leg = next(planned)
        gathered = yield Leg(leg.kind, message, leg.logical_bytes, received=tuple(received))
        sums = {number: self.setting.zeros_of(number) for number in numbers}
        sizes = [len(pending.messages[number]) for number in numbers]
        for rank, (payload, weight) in enumerate(zip(gathered.split(received), pending.weights, strict=True)):
            key = pending.key.of_rank(rank)
            for number, part in zip(numbers, payload.split(sizes), strict=True):
                sums[number].add_(self.codec.decode(number, part, key), alpha=weight)
        return sums
