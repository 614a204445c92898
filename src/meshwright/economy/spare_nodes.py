"""Spare nodes: the fraction of time that a job waits for a repaired node, and the number that costs the least.

N nodes work and S more wait for the first of them to fail. Nodes fail as a Poisson process, one every M seconds, while
all N work; each failed one is away for a repair of D seconds on average. The job stops while S + 1 nodes are away, and
nothing fails then. That is an Erlang loss system of S + 1 servers under a load of D/M: it stands still for the share

    B(S + 1, D/M) = (a^(S+1)/(S+1)!) / Σ_{k ≤ S+1} a^k/k!,  a = D/M

of the time, whatever the distribution of the repairs is (A. K. Erlang 1917; its insensitivity: B. A. Sevastyanov 1957).
With no spare node that is D/(M + D). A node that works again is a spare one again.

Under any plan the dollars are in proportion to (devices + S·devices of a node)/(1 − B(S + 1, D/M)).
"""

from collections.abc import Iterator
from itertools import count, pairwise
from math import inf
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Number = TypeVar("Number", float, NDArray[np.float64])
WORTH_A_NODE = 0.001
"""Without a price, one more spare node must save at least this share of the time."""
MOST = 10**5
"""Spare nodes at most."""


def stopped_share(mtbf_s: Number, repair_s: float, spare_nodes: int) -> Number:
    """B(S + 1, D/M), by its recursion over servers, of a number or an array. 0 where nothing fails (M infinite)."""
    load = repair_s / mtbf_s
    blocked = load / (1 + load)
    for servers in range(2, spare_nodes + 2):
        blocked = load * blocked / (servers + load * blocked)
    return blocked


def best_spare_nodes(mtbf_s: float, repair_s: float, devices: int, node_devices: int, *, priced: bool) -> int:
    """Return the number of spare nodes with the least dollars of a training that stops without a whole set of nodes."""
    return cheapest_spare_nodes(_relative_times(repair_s / mtbf_s), devices, node_devices, priced=priced)


def cheapest_spare_nodes(times: Iterator[float], devices: int, node_devices: int, *, priced: bool) -> int:
    """Return the number of spare nodes with the least dollars; ``times``: those of a training with 0, 1, … of them.

    Each saves less than the one before: it is the last that is worth its price, or where nothing is ``priced``, the
    last that saves 0.1 % of the time.
    """
    for spares, (time, less) in enumerate(pairwise(times)):
        paid = devices + spares * node_devices
        needed = (paid + node_devices) / paid if priced else 1 / (1 - WORTH_A_NODE)
        if not less * needed < time or spares == MOST:
            break
    return spares


def _relative_times(load: float) -> Iterator[float]:
    """Yield 1/(1 − B(S + 1, load)) for S = 0, 1, …"""
    blocked = 1.0
    for servers in count(1):
        blocked = load * blocked / (servers + load * blocked)
        yield 1 / (1 - blocked) if blocked < 1 else inf
