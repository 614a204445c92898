"""Expected number of different experts that the tokens of an iteration choose.

A token chooses k of E experts. Expert i is chosen by one token with probability p_i, Σ p_i = k; by none of n
independent tokens with (1 − p_i)^n. So E[distinct] = Σ_i 1 − (1 − p_i)^n, with even routing E·(1 − (1 − k/E)^n).
Ignored: tokens of one sequence choose alike, which makes fewer of them different.
"""

from collections.abc import Sequence

import numpy as np

from meshwright.program.local_shape import Number


def expected_distinct_experts(
    experts: int, experts_per_token: int, tokens: Number, shares: Sequence[float] | None = None
) -> Number:
    """Return the expected number of different experts of ``tokens``.

    ``shares``: of the choices that fall on each expert, which sum to 1; None: all alike. No expert is chosen twice by a
    token, so that a share counts up to 1/k.
    """
    if shares is None:
        chosen = min(experts_per_token / experts, 1.0)
        return experts * -np.expm1(np.asarray(tokens) * _log_missed(np.array(chosen)))
    chosen_by = np.minimum(np.asarray(shares, float) * experts_per_token, 1.0)
    exponents = np.asarray(tokens, float)[..., None] * _log_missed(chosen_by)
    return -np.expm1(exponents).sum(axis=-1)


def _log_missed(chosen: np.ndarray) -> np.ndarray:
    """Return ln(1 − p), a large negative number for 1."""
    return np.log1p(-np.minimum(chosen, 1 - 1e-15))
