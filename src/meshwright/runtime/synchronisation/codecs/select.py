"""A share of the elements, chosen by their places (DeToNATION, arXiv 2502.06728).

m ← β·m + v; the elements at K = ⌈keep·k⌉ places are sent as they are, and taken out of m. Places are equal on all ranks
and not sent:

==========  ========================================================================================================
pattern     places
==========  ========================================================================================================
``random``  K at random, drawn for each exchange
``slice``   the next K elements in turn, from the last to the first again
``stride``  the next K in turn of the order 0, T, 2T, …, 1, T + 1, … with T = ⌈k/K⌉, so one in T
==========  ========================================================================================================
"""

from collections.abc import Callable, Mapping

import torch

from meshwright.program.synchronisation.kept_counts import share_of
from meshwright.runtime.synchronisation.codecs.codec import CodecSetting, States
from meshwright.runtime.synchronisation.draw_key import DrawKey
from meshwright.runtime.synchronisation.message_fields import FieldReader, Message, packed


def _random(elements: int, kept: int, turn: int, draw: torch.Generator) -> torch.Tensor:
    return torch.randperm(elements, generator=draw, device=draw.device)[:kept]


def _slice(elements: int, kept: int, turn: int, draw: torch.Generator) -> torch.Tensor:
    return (torch.arange(kept, device=draw.device) + turn * kept % elements) % elements


def _stride(elements: int, kept: int, turn: int, draw: torch.Generator) -> torch.Tensor:
    step = -(-elements // kept)
    order = torch.cat([torch.arange(first, elements, step, device=draw.device) for first in range(step)])
    return order[_slice(elements, kept, turn, draw)]


PATTERNS: Mapping[str, Callable[[int, int, int, torch.Generator], torch.Tensor]] = {
    "random": _random,
    "stride": _stride,
    "slice": _slice,
}
"""Places of (elements, kept elements, number of the exchange, generator), by the names of the plan's patterns."""


class Select:
    """The codec; it keeps the momentum m of each stretch."""

    def __init__(self, setting: CodecSetting) -> None:
        self.setting = setting
        options = setting.compression.select
        assert options is not None
        self.share, self.decay = options.keep, float(options.momentum)
        self.pattern = PATTERNS[options.pattern]
        self.momentum = setting.zeros()

    def states(self) -> States:
        """Return the momentum of each stretch."""
        return {f"momentum.{name}": self.momentum[number] for number, name in self.setting.named.items()}

    def encode(self, number: int, values: torch.Tensor, key: DrawKey) -> Message:
        """Return the momentum at the places, and take it out there."""
        momentum = self.momentum[number].mul_(self.decay).add_(values)
        sent = momentum[self._places(number, key)].to(self.setting.kept)
        message = packed(sent)
        momentum.sub_(self.decode(number, message.payload, key))
        return message

    def decode(self, number: int, payload: torch.Tensor, key: DrawKey) -> torch.Tensor:
        """Return the values at the places, and zeros elsewhere."""
        places = self._places(number, key)
        values = self.setting.zeros_of(number)
        values[places] = FieldReader(payload).take(len(places), self.setting.kept).to(values.dtype)
        return values

    def _places(self, number: int, key: DrawKey) -> torch.Tensor:
        elements = self.setting.stretches[number].elements
        draw = key.shared().generator(self.setting.device, self.setting.stretches[number].name)
        return self.pattern(elements, share_of(self.share, elements), key.exchange, draw)
