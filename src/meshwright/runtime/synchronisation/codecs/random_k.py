"""Elements at random places, which differ by rank and follow from the key.

Without error feedback values are scaled by elements/kept, so that their mean is the value itself; with it they are not.
"""

import torch

from meshwright.program.synchronisation.kept_counts import kept_of
from meshwright.runtime.synchronisation.codecs.codec import CodecSetting, States
from meshwright.runtime.synchronisation.draw_key import DrawKey
from meshwright.runtime.synchronisation.message_fields import FieldReader, Message, packed


class RandomK:
    """The codec; it keeps nothing."""

    def __init__(self, setting: CodecSetting) -> None:
        self.setting = setting
        assert setting.compression.random_k is not None
        self.share = setting.compression.random_k

    def states(self) -> States:
        """Return nothing."""
        return {}

    def encode(self, number: int, values: torch.Tensor, key: DrawKey) -> Message:
        """Return the values at the places."""
        places = self._places(number, key)
        scale = 1.0 if self.setting.compression.error_feedback else values.numel() / len(places)
        return packed((values[places] * scale).to(self.setting.kept))

    def decode(self, number: int, payload: torch.Tensor, key: DrawKey) -> torch.Tensor:
        """Return the values at the places of the key's rank, and zeros elsewhere."""
        places = self._places(number, key)
        values = self.setting.zeros_of(number)
        values[places] = FieldReader(payload).take(len(places), self.setting.kept).to(values.dtype)
        return values

    def _places(self, number: int, key: DrawKey) -> torch.Tensor:
        elements = self.setting.stretches[number].elements
        draw = key.generator(self.setting.device, self.setting.stretches[number].name)
        order = torch.randperm(elements, generator=draw, device=draw.device)
        return order[: kept_of(self.share, elements)]
