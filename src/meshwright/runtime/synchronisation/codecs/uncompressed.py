"""Values as they are; ``cast`` rounds them on their way."""

from collections.abc import Sequence

import torch

from meshwright.runtime.synchronisation.codecs.codec import CodecSetting, States
from meshwright.runtime.synchronisation.draw_key import DrawKey


class Uncompressed:
    """The codec; it keeps nothing."""

    needs_values = False

    def __init__(self, setting: CodecSetting) -> None:
        self.setting = setting

    def states(self) -> States:
        """Return nothing."""
        return {}

    def first(self, number: int, values: torch.Tensor, key: DrawKey) -> torch.Tensor:
        """Return the values."""
        return values

    def second(self, number: int, values: torch.Tensor, total: torch.Tensor) -> None:
        """Return nothing: there is one round."""

    def decode(self, number: int, totals: Sequence[torch.Tensor], key: DrawKey) -> torch.Tensor:
        """Return the sum."""
        return totals[0]
