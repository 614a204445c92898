"""The best checkpoint interval (Young, Daly), and the fraction of time that goes into kept work.

Failures come as a Poisson process with M seconds between two on average. A segment is τ seconds of work and δ seconds
of writing it; a failure throws the segment away and costs R seconds of restart, which may fail too. One segment takes

    E(τ) = M·e^(R/M)·(e^((τ+δ)/M) − 1)

seconds on average (J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", Future
Generation Computer Systems 22(3), 2006). So τ/E(τ) of the time is useful. It is largest where
(1 − τ/M)·e^(τ/M) = e^(−δ/M), whatever R is. For small δ that is √(2δM) (J. W. Young, "A first order approximation to
the optimum checkpoint interval", Communications of the ACM 17(9), 1974).

What it ignores: failures that cluster, that come while nothing runs, or that silently spoil what was written.
"""

from math import exp, expm1, inf, log, log1p

HALVINGS = 200


def best_interval(write_s: float, mtbf_s: float) -> float:
    """Return the root of ln(1 − x) + x = −δ/M for x = τ/M, as τ in seconds, by bisection."""
    if mtbf_s == inf:
        return inf
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if middle == 1.0 or log1p(-middle) + middle < -write_s / mtbf_s:
            high = middle
        else:
            low = middle
    return low * mtbf_s


def useful_share(work_s: float, write_s: float, restart_s: float, mtbf_s: float) -> float:
    """τ/E(τ): the part of the time that becomes work that is kept. 0 where it is too small for a number."""
    if work_s == inf:
        return 1.0
    if mtbf_s == inf:
        return work_s / (work_s + write_s)
    segment = (work_s + write_s) / mtbf_s
    log_growth = segment + log1p(-exp(-segment)) if segment > 1 else log(expm1(segment))
    return exp(log(work_s / mtbf_s) - restart_s / mtbf_s - log_growth)
