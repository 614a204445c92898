"""PowerSGD (arXiv 1905.13727): two thin factors of each matrix, which add up over ranks.

With the right factor Q (columns × r) of the last exchange and values V (rows × columns): P = Σ w·V·Q over the ranks;
P is orthonormalised by Householder QR; Q = Σ w·Vᵀ·P; the sum is P·Qᵀ. The first Q is random, equal on all ranks. A
stretch of several matrices, such as experts, has factors for each.
"""

from collections.abc import Sequence

import torch

from meshwright.program.synchronisation.low_rank_ranks import low_rank_ranks
from meshwright.runtime.synchronisation.codecs.codec import CodecSetting, States
from meshwright.runtime.synchronisation.draw_key import DrawKey, seeded


class LowRank:
    """The codec; it keeps the right factors, (count, columns, r) of each stretch."""

    needs_values = True

    def __init__(self, setting: CodecSetting) -> None:
        self.setting = setting
        self.ranks = low_rank_ranks(setting.compression, setting.stretches)
        self.right = {number: self._first_factor(number) for number in setting.split.encoded}

    def states(self) -> States:
        """Return the right factors."""
        return {f"factor.{name}": self.right[number] for number, name in self.setting.named.items()}

    def first(self, number: int, values: torch.Tensor, key: DrawKey) -> torch.Tensor:
        """Return V·Q."""
        return (self._matrices(number, values) @ self.right[number]).flatten()

    def second(self, number: int, values: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        """Orthonormalise the left factors in place, and return Vᵀ·P."""
        left = self._left(number, total)
        left.copy_(torch.linalg.qr(left).Q)
        return (self._matrices(number, values).mT @ left).flatten()

    def decode(self, number: int, totals: Sequence[torch.Tensor], key: DrawKey) -> torch.Tensor:
        """Return P·Qᵀ, and keep Q."""
        right = self.right[number].copy_(totals[1].view_as(self.right[number]))
        return (self._left(number, totals[0]) @ right.mT).flatten()

    def _shape(self, number: int) -> tuple[int, int, int]:
        shape = self.setting.stretches[number].matrices
        assert shape is not None
        return shape

    def _matrices(self, number: int, values: torch.Tensor) -> torch.Tensor:
        return values.view(self._shape(number))

    def _left(self, number: int, flat: torch.Tensor) -> torch.Tensor:
        count, rows, _ = self._shape(number)
        return flat.view(count, rows, -1)

    def _first_factor(self, number: int) -> torch.Tensor:
        count, _, columns = self._shape(number)
        rank = self.ranks[number]
        assert rank is not None
        draw = seeded(self.setting.device, self.setting.seed, "factor", number)
        shape = (count, columns, rank)
        return torch.randn(shape, generator=draw, dtype=self.setting.real, device=self.setting.device)
