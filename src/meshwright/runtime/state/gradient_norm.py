"""Sum the squares of gradients, in one tensor or divided between device and host, with the same bits."""

from collections.abc import Sequence

import torch

from meshwright.runtime.state.on_host.offloaded_unit import OffloadedUnit
from meshwright.runtime.state.sharded_unit import Unit

ROW = 4096
"""Elements that are squared and summed at once."""


def squares_of(unit: Unit, start: int, stop: int, like: torch.Tensor) -> torch.Tensor:
    """Return the sum of squares of a range of a unit's summed gradients, in the dtype of ``like``."""
    if isinstance(unit, OffloadedUnit) and unit.hosting.leaves:
        return sum_of_squares_in_parts(unit.sums.memory(start, stop), like)
    assert unit.reduced is not None, f"{unit.name} has no gradient"
    return sum_of_squares(unit.reduced[start:stop].to(like))


def sum_of_squares(values: torch.Tensor) -> torch.Tensor:
    """Return the sum of squares, row by row first: one long single-precision sum loses small terms."""
    square = len(values) // ROW * ROW
    rows = _row_norms(values[:square])
    return rows.dot(rows) + values[square:].dot(values[square:])


def sum_of_squares_in_parts(parts: Sequence[torch.Tensor], like: torch.Tensor) -> torch.Tensor:
    """Return the sum of squares of values in several parts, as if they were one tensor.

    Rows are squared where they are; those of several parts come together on the device of ``like``.
    """
    total = sum(map(len, parts))
    square = total // ROW * ROW
    norms: list[torch.Tensor] = []
    at = 0
    for part in parts:
        end = min(at + len(part), square)
        first, last = -(-at // ROW) * ROW, end // ROW * ROW
        if at < first <= end:
            norms.append(_row_norms(_elements(parts, first - ROW, first, like)))
        if first < last:
            norms.append(_row_norms(part[first - at : last - at].to(like.dtype)).to(like.device))
        at += len(part)
    rest = _elements(parts, square, total, like)
    rows = torch.cat(norms) if norms else like.new_zeros(0)
    return rows.dot(rows) + rest.dot(rest)


def _row_norms(values: torch.Tensor) -> torch.Tensor:
    return torch.linalg.vector_norm(values.view(-1, ROW), dim=-1)


def _elements(parts: Sequence[torch.Tensor], start: int, stop: int, like: torch.Tensor) -> torch.Tensor:
    """Return elements of values in several parts as one tensor."""
    found, at = [], 0
    for part in parts:
        low, high = max(start - at, 0), min(stop - at, len(part))
        if low < high:
            found.append(part[low:high].to(like))
        at += len(part)
    return torch.cat(found) if found else like.new_zeros(0)
