"""Utilisation of a round as a function of the rate of the links between islands, and the rate that one needs.

An exchange takes what a rank sends over the rate; latency, codecs and outer steps are left out. Streaming DiLoCo (arXiv
2501.18512) compares algorithms by the rate that they need at a fixed step time.
"""

from collections.abc import Sequence

from meshwright.cost.synchronisation.round_time import EntryTimes, play_rounds
from meshwright.plans.synchronisation.periods import Periods
from meshwright.plans.synchronisation.synchronisation import Synchronisation

BISECTIONS = 100
RATES = 1.0, 1e18
"""Bytes per second between which a rate is sought."""


def utilisation_at(
    bytes_per_s: float, step_s: float, entry: Synchronisation, sent_bytes: Sequence[float]
) -> float:
    """Return the share of a round in which a rank does not wait; ``sent_bytes`` are what it sends of each fragment."""
    exchange_s = tuple(size / bytes_per_s for size in sent_bytes)
    none = (0.0,) * len(exchange_s)
    times = EntryTimes(0, Periods(entry), exchange_s, none, none)
    found = play_rounds(step_s, [times], entry.period, whole_run=False)
    return entry.period * step_s / found.seconds


def needed_bytes_per_s(
    utilisation: float, step_s: float, entry: Synchronisation, sent_bytes: Sequence[float]
) -> float:
    """Return the lowest rate with at least this utilisation."""
    low, high = RATES
    for _ in range(BISECTIONS):
        middle = (low * high) ** 0.5
        if utilisation_at(middle, step_s, entry, sent_bytes) >= utilisation:
            high = middle
        else:
            low = middle
    return high
