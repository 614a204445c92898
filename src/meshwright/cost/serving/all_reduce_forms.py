"""Time of an all-reduce of V bytes over n ranks in N fast domains, for each algorithm that a plan can name.

auto                a custom kernel inside a fast domain, the library's tree between domains
ring                latency of 2·(n − 1) hops, of which 2·(N − 1) are between domains; the library's bandwidth
tree                the library's
recursive-doubling  NVRAR (arXiv 2511.09557): reduce-scatter in each domain, log2 N exchanges of V·N/n between domains
                    by one-sided writes, all-gather in each domain

Inside one domain a recursive doubling is the custom kernel, and where the library is quicker, as for long messages, it
is the library's. One-sided writes have no hop's hand-shake (``data/constants.csv``).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from meshwright.program.local_shape import Number

if TYPE_CHECKING:
    from meshwright.cost.serving.hardware_times import ServingTimes

RING = 2.0
"""Times that a ring goes round: once to reduce, once to gather."""


def _auto(times: "ServingTimes", logical_bytes: Number, ranks: Number) -> Number:
    return times.all_reduce(logical_bytes, ranks)


def _tree(times: "ServingTimes", logical_bytes: Number, ranks: Number) -> Number:
    return times.library_all_reduce(logical_bytes, ranks)


def _ring(times: "ServingTimes", logical_bytes: Number, ranks: Number) -> Number:
    forms = times.forms
    domains = np.maximum(1.0, np.asarray(ranks) / forms.domain)
    hop = forms.constants["nic_ring_hop_s"]
    more = RING * (domains - 1) * hop - forms.constants["nic_tree_hop_s"] * np.log2(domains)
    within = forms.kernels.all_reduce.latency_per_rank_s * (np.asarray(ranks) - domains)
    tree = times.library_all_reduce(logical_bytes, ranks)
    return np.where(np.asarray(tree) > 0, tree + more + within, 0.0)


def _recursive_doubling(times: "ServingTimes", logical_bytes: Number, ranks: Number) -> Number:
    forms, moved = times.forms, np.asarray(logical_bytes, float)
    local = np.minimum(ranks, forms.domain)
    domains = np.maximum(1.0, np.asarray(ranks) / forms.domain)
    steps = np.ceil(np.log2(domains))
    hop = times.constants["one_sided_hop_s"]
    rate = forms.constants["nic_efficiency"] * forms.nic_share_bytes_per_s(domains)
    across = steps * (hop + moved / local / rate)
    within = times.exchange("reduce-scatter", moved, local) + times.exchange("all-gather", moved, local)
    found = np.where(moved > 0, across + within, 0.0)
    library = _auto(times, logical_bytes, ranks)
    return np.where(domains > 1, np.minimum(found, library), library)


ALL_REDUCE_FORMS: dict[str, Callable[["ServingTimes", Number, Number], Number]] = {
    "auto": _auto,
    "ring": _ring,
    "tree": _tree,
    "recursive-doubling": _recursive_doubling,
}
