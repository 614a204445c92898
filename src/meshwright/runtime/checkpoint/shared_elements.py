"""Find the elements that two stretches of a tensor have in common, whatever cuts they come from. Pure.

A stretch is elements start … start + length of the flattened part of a tensor that a rank holds. That part may be cut
along several dims, or list rows; it may be padded where a cut does not divide a dim. Each stretch is described by its
*runs*: maximal ranges that are contiguous both in the stretch and in the whole flattened tensor. Padding is in no run.

Two stretches of the same tensor then share what their runs share in the whole tensor, so a checkpoint of any layout can
be read under any other, element by element.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshwright.program.rank_units.unit_layout import Cut

Places = NDArray[np.int64]


@dataclass(frozen=True)
class Region:
    """A stretch of a tensor: ``whole_shape`` is the model's tensor, ``shape`` the rank's part with its padding."""

    whole_shape: tuple[int, ...]
    shape: tuple[int, ...]
    cuts: tuple[Cut, ...]
    start: int
    length: int


class Runs(NamedTuple):
    """Ranges of a stretch in the order of their places in the whole tensor: starts there, starts here, lengths."""

    whole: Places
    here: Places
    lengths: Places

    @property
    def elements(self) -> int:
        """The number of elements, padding not counted."""
        return int(self.lengths.sum())


class Overlap(NamedTuple):
    """Ranges that two stretches share: starts in the first, starts in the second, lengths; sorted by the second."""

    first: Places
    second: Places
    lengths: Places

    @property
    def elements(self) -> int:
        """The number of elements that are shared."""
        return int(self.lengths.sum())


def runs_of(region: Region) -> Runs:
    """Return the runs of a stretch."""
    whole, here, length = _blocks(region)
    ends = np.minimum(here + length, region.start + region.length)
    starts = np.maximum(here, region.start)
    kept = starts < ends
    whole = (whole + starts - here)[kept]
    here, lengths = (starts - region.start)[kept], (ends - starts)[kept]
    order = np.argsort(whole, kind="stable")
    return _merged(whole[order], here[order], lengths[order])


def overlap(first: Runs, second: Runs) -> Overlap:
    """Return the elements that two stretches of a tensor have in common."""
    ends = first.whole + first.lengths
    low = np.searchsorted(ends, second.whole, side="right")
    high = np.searchsorted(first.whole, second.whole + second.lengths, side="left")
    counts = np.maximum(high - low, 0)
    of_second = np.repeat(np.arange(len(counts)), counts)
    before = np.cumsum(counts) - counts
    of_first = np.arange(len(of_second)) - before[of_second] + low[of_second]
    start = np.maximum(first.whole[of_first], second.whole[of_second])
    stop = np.minimum(ends[of_first], (second.whole + second.lengths)[of_second])
    here = second.here[of_second] + start - second.whole[of_second]
    there = first.here[of_first] + start - first.whole[of_first]
    order = np.argsort(here, kind="stable")
    return Overlap(there[order], here[order], (stop - start)[order])


def _blocks(region: Region) -> tuple[Places, Places, int]:
    """Return the ranges of a rank's part that are contiguous in both, unsorted: starts in both, and their length."""
    shape, whole_shape = region.shape, region.whole_shape
    cuts = {cut.dim: cut for cut in region.cuts if not _is_everything(cut, shape, whole_shape)}
    if not cuts:
        return np.zeros(1, np.int64), np.zeros(1, np.int64), prod(shape)
    innermost = max(cuts)
    inner, whole, here = prod(whole_shape[innermost + 1 :]), np.zeros(1, np.int64), np.zeros(1, np.int64)
    for dim in range(innermost + 1):
        cut = cuts.get(dim)
        of_whole = prod(whole_shape[dim + 1 :])
        of_here = prod(shape[dim + 1 : innermost + 1]) * inner
        if dim == innermost and cut is not None and cut.rows is None:
            return whole + cut.start * of_whole, here, (cut.stop - cut.start) * inner
        rows = _rows(cut, whole_shape[dim])
        whole = np.add.outer(whole, rows * of_whole).ravel()
        here = np.add.outer(here, np.arange(len(rows)) * of_here).ravel()
    return whole, here, inner


def _rows(cut: Cut | None, length: int) -> Places:
    """Return the places along a dim of the whole tensor that a rank holds, in its order."""
    if cut is None:
        return np.arange(length)
    return np.arange(cut.start, cut.stop) if cut.rows is None else np.asarray(cut.rows, np.int64)


def _is_everything(cut: Cut, shape: Sequence[int], whole_shape: Sequence[int]) -> bool:
    length = whole_shape[cut.dim]
    return cut.rows is None and (cut.start, cut.stop) == (0, length) and shape[cut.dim] == length


def _merged(whole: Places, here: Places, lengths: Places) -> Runs:
    """Join neighbours that are contiguous in both."""
    if len(whole) < 2:
        return Runs(whole, here, lengths)
    joined = (whole[1:] == whole[:-1] + lengths[:-1]) & (here[1:] == here[:-1] + lengths[:-1])
    firsts = np.flatnonzero(np.concatenate(([True], ~joined)))
    return Runs(whole[firsts], here[firsts], np.add.reduceat(lengths, firsts))
