"""The probability that a token has one of a part's experts, from counts of singles and pairs.

m of a token's k choices fall on a part: Σ m is what singles count, S₁ = E m, and pairs count S₂ = E m(m − 1)/2. Of
Pólya's urn, from which k balls are drawn and each goes back with ρ of its kind, both are

    S₁ = k·p,   S₂ = k(k − 1)/2 · p·q,   q = (p + ρ)/(1 + ρ),

and the part is missed with probability Π_{i<k} (1 − p + i·ρ)/(1 + i·ρ). It is exact for k = 2, where S₁ − S₂ is left of
it; for experts that are chosen alike (ρ = −1/E: drawn without putting back, as in ``dispatch_fanout.py``); and where
a token has just one, or all, of its choices there. For other routers it is an estimate, held between what singles
and pairs alone allow: no less than max_r 2/(r + 1)·(S₁ − S₂/r) (Dawson and Sankoff, 1967), no more than min(1, S₁).
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEAST = 1e-300


def hit_probability(singles: Floats, pairs: Floats, chosen: int) -> Floats:
    """Return the probability that a token has one of a part's experts, from S₁ and S₂ of each part."""
    p = np.minimum(singles / chosen, 1.0)
    ways = max(chosen * (chosen - 1) / 2, 1.0)
    q = np.clip(pairs / np.maximum(ways * p, LEAST), 0.0, 1.0)
    missed = 1 - p
    for i in range(1, chosen):
        more = i * (q - p)
        missed = missed * np.maximum(0.0, (1 - p) * (1 - q) + more) / np.maximum(1 - q + more, LEAST)
    return np.clip(1 - missed, hit_probability_bound(singles, pairs, chosen), np.minimum(1.0, singles))


def hit_probability_bound(singles: Floats, pairs: Floats, chosen: int) -> Floats:
    """Return a lower bound over all choices with these singles and pairs; sums of parts obey it too."""
    found = [2 / (r + 1) * (singles - pairs / r) for r in range(1, chosen + 1)]
    return np.asarray(np.max(found, axis=0))
