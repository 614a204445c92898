"""A count sketch (TAGC, arXiv 2504.05638): counters that add up over ranks.

Each row permutes the k elements, takes places modulo ⌈width·k⌉, and adds each element to its counter with a random
sign. An element's estimate is the median over rows of its signed counters. Permutations and signs are drawn for each
exchange, equal on all ranks. With width ≥ 1 no two elements share a counter, and the sum is exact. The permutation is
assumed: the paper has an index of the elements that are not zero besides.
"""

from collections.abc import Sequence

import torch

from meshwright.program.synchronisation.kept_counts import share_of
from meshwright.runtime.synchronisation.codecs.codec import CodecSetting, States
from meshwright.runtime.synchronisation.draw_key import DrawKey


class CountSketch:
    """The codec; it keeps nothing."""

    needs_values = False

    def __init__(self, setting: CodecSetting) -> None:
        self.setting = setting
        options = setting.compression.sketch
        assert options is not None
        self.rows, self.width = int(options.rows), options.width

    def states(self) -> States:
        """Return nothing."""
        return {}

    def first(self, number: int, values: torch.Tensor, key: DrawKey) -> torch.Tensor:
        """Return the counters, row by row."""
        counters = self._counters(number)
        rows = []
        for order, signs in self._hashes(number, key):
            placed = torch.empty_like(values).scatter_(0, order, values * signs)
            padded = torch.nn.functional.pad(placed, (0, -len(placed) % counters))
            rows.append(padded.view(-1, counters).sum(0))
        return torch.cat(rows)

    def second(self, number: int, values: torch.Tensor, total: torch.Tensor) -> None:
        """Return nothing: there is one round."""

    def decode(self, number: int, totals: Sequence[torch.Tensor], key: DrawKey) -> torch.Tensor:
        """Return the estimates of the summed elements."""
        counters = totals[0].view(self.rows, -1)
        hashes = self._hashes(number, key)
        signed = [row[order % len(row)] * signs for row, (order, signs) in zip(counters, hashes, strict=True)]
        ordered = torch.stack(signed).sort(dim=0).values
        return (ordered[(self.rows - 1) // 2] + ordered[self.rows // 2]) / 2

    def _counters(self, number: int) -> int:
        return share_of(self.width, self.setting.stretches[number].elements)

    def _hashes(self, number: int, key: DrawKey) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return the permutation and the signs of each row."""
        elements = self.setting.stretches[number].elements
        draw = key.shared().generator(self.setting.device, self.setting.stretches[number].name)
        return [
            (
                torch.randperm(elements, generator=draw, device=draw.device),
                torch.randint(0, 2, (elements,), generator=draw, device=draw.device) * 2 - 1,
            )
            for _ in range(self.rows)
        ]
