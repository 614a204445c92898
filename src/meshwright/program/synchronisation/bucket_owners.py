"""Deal the buckets of an exchange to the ranks that sum them.

Buckets lie one behind the other, those of all stretches. The rank that sums a bucket is the one in whose equal share of
all elements the bucket's middle lies, so each rank has a run of buckets, and runs are balanced up to one bucket.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BucketRun:
    """Buckets of one stretch in a row that one rank sums: its first bucket, and the number of elements."""

    stretch: int
    bucket: int
    elements: int


def bucket_runs(stretches: Sequence[tuple[int, int, int]], ranks: int) -> tuple[tuple[BucketRun, ...], ...]:
    """Return the runs of each rank; ``stretches`` are (number, elements, elements of a bucket)."""
    total = sum(elements for _, elements, _ in stretches)
    runs: list[list[BucketRun]] = [[] for _ in range(ranks)]
    before = 0
    for number, elements, bucket in stretches:
        for owner, first, held in _owned(before, elements, bucket, total, ranks):
            runs[owner].append(BucketRun(number, first, held))
        before += elements
    return tuple(map(tuple, runs))


def _owned(before: int, elements: int, bucket: int, total: int, ranks: int) -> list[tuple[int, int, int]]:
    """Return (owner, first bucket, elements) of the runs of a stretch that begins behind ``before`` elements."""
    buckets = range(-(-elements // bucket))

    def owner(number: int) -> int:
        start, end = number * bucket, min(elements, (number + 1) * bucket)
        return (2 * before + start + end) * ranks // (2 * total)

    runs: list[tuple[int, int, int]] = []
    first = 0
    while first < len(buckets):
        end = bisect_right(buckets, owner(first), lo=first, key=owner)
        runs.append((owner(first), first, min(elements, end * bucket) - first * bucket))
        first = end
    return runs
