"""Numbers of equal replicas to try on some devices.

For every divisor d of the devices G, d times each number up to ``MOST_EACH`` that fits on G/d devices, and d times the
largest one. So k times a number for G is a number for k·G: what answers a question for G, k times over, is in the space
of k·G devices, and more devices never do worse. Up to ``MOST_EACH`` replicas this is every number.
"""

from functools import cache

MOST_EACH = 16


@cache
def replica_counts(devices: int, of_replica: int) -> tuple[int, ...]:
    """Return numbers of replicas of ``of_replica`` devices each, in ascending order."""
    found: set[int] = set()
    for parts in divisors(devices):
        most = devices // parts // of_replica
        found.update(parts * number for number in (*range(1, min(most, MOST_EACH) + 1), most))
    return tuple(sorted(found - {0}))


@cache
def divisors(number: int) -> tuple[int, ...]:
    """Return the divisors of a number in ascending order."""
    low = [size for size in range(1, int(number**0.5) + 1) if number % size == 0]
    return tuple(sorted({*low, *(number // size for size in low)}))
