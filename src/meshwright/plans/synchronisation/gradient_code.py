"""Gradient codes: replicas compute several shares of a batch, so that some may be late (arXiv 1612.03301). Pure.

Of n replicas each computes s + 1 of n shares and sends Σⱼ Bᵢⱼ·gⱼ. From any n − s of these the sum of all gⱼ is decoded
with weights a, where Σᵢ aᵢ·Bᵢⱼ = 1 for every j; the load of a replica is (s + 1)/n of the batch.

==========  ========================================================================================================
code        matrix B
==========  ========================================================================================================
repetition  where s + 1 divides n: groups of s + 1 replicas that compute the same shares, Bᵢⱼ = 1; the first one of
            each group counts
cyclic      otherwise: replica i computes i … i + s (mod n). Where n or s is odd, not both, rows are shifts of the
            coefficients of Π (x − ωᶠ), with the s roots of unity next to −1 (arXiv 1707.03858). Else H is a random
            matrix of s rows whose columns sum to 0, and the rows of B are orthogonal to its rows (1612.03301, alg. 2)
==========  ========================================================================================================

Decoding of a cyclic code magnifies rounding. Its condition number is that of the n − s rows of B that arrive, the
worst over all patterns; of ``DRAWS`` random matrices the best is taken. Assumed: the draws, and ``MOST_PATTERNS``,
beyond which evenly chosen patterns stand for all.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations, islice
from math import comb

import numpy as np

DRAWS = 32
MOST_PATTERNS = 512
SEED = 0


@dataclass(frozen=True)
class GradientCode:
    """The code of ``replicas`` of which ``tolerate`` may be late."""

    replicas: int
    tolerate: int

    @property
    def shares_each(self) -> int:
        """The shares that a replica computes."""
        return self.tolerate + 1

    @property
    def needed(self) -> int:
        """The replicas that a step waits for."""
        return self.replicas - self.tolerate

    @property
    def repeats(self) -> bool:
        """Return true if groups of equal replicas make the code."""
        return self.replicas % self.shares_each == 0

    def shares_of(self, replica: int) -> list[int]:
        """Return the shares that a replica computes, in order."""
        first = replica - replica % self.shares_each if self.repeats else replica
        return [(first + more) % self.replicas for more in range(self.shares_each)]

    def coefficients(self, replica: int) -> list[float]:
        """Return the factor of each of its shares in a replica's sum."""
        row = self.matrix[replica]
        return [float(row[share]) for share in self.shares_of(replica)]

    @cached_property
    def matrix(self) -> np.ndarray:
        """B: (replica, share)."""
        if self.repeats:
            found = np.zeros((self.replicas, self.replicas))
            for replica in range(self.replicas):
                found[replica, self.shares_of(replica)] = 1
            return found
        return _best_cyclic(self.replicas, self.tolerate)

    def decode(self, arrived: Iterable[int]) -> list[float]:
        """Return the weight of each replica's sum: 0 of late replicas and of those whose sum is not needed."""
        there, weights = sorted(arrived), np.zeros(self.replicas)
        assert len(there) >= self.needed, (there, self)
        if self.repeats:
            for group in range(0, self.replicas, self.shares_each):
                weights[next(replica for replica in there if group <= replica < group + self.shares_each)] = 1
            return [float(weight) for weight in weights]
        weights[there] = np.linalg.lstsq(self.matrix[there].T, np.ones(self.replicas), rcond=None)[0]
        return [float(weight) for weight in weights]

    @property
    def worst_condition(self) -> float:
        """The largest condition number of the rows that arrive; 1 of groups, whose decoding adds rows of them."""
        return 1.0 if self.repeats else _worst_condition(self.matrix, self.tolerate)


@lru_cache(maxsize=64)
def gradient_code(replicas: int, tolerate: int) -> GradientCode:
    """Return the code, whose matrix is computed once."""
    return GradientCode(replicas, tolerate)


def arrival_patterns(replicas: int, late: int) -> Iterator[tuple[int, ...]]:
    """Yield all sets of replicas that arrive if so many are late, or evenly chosen ones of very many."""
    step = max(1, comb(replicas, late) // MOST_PATTERNS)
    return islice(combinations(range(replicas), replicas - late), 0, None, step)


def _worst_condition(matrix: np.ndarray, late: int) -> float:
    rows: Sequence[tuple[int, ...]] = list(arrival_patterns(len(matrix), late))
    return max(float(np.linalg.cond(matrix[list(there)])) for there in rows)


@lru_cache(maxsize=64)
def _best_cyclic(replicas: int, tolerate: int) -> np.ndarray:
    if replicas % 2 != tolerate % 2:
        return _shifted(replicas, tolerate)
    draws = (_drawn(replicas, tolerate, SEED + draw) for draw in range(DRAWS))
    return min(draws, key=lambda matrix: _worst_condition(matrix, tolerate))


def _shifted(replicas: int, tolerate: int) -> np.ndarray:
    """Return a matrix whose rows are shifts of the coefficients of a polynomial with s roots around −1."""
    first = (replicas - tolerate + 1) // 2
    roots = np.exp(2j * np.pi * np.arange(first, first + tolerate) / replicas)
    coefficients = np.poly(roots).real
    found = np.zeros((replicas, replicas))
    for row in range(replicas):
        found[row, [(row + more) % replicas for more in range(tolerate + 1)]] = coefficients
    return found / coefficients.sum()


def _drawn(replicas: int, tolerate: int, seed: int) -> np.ndarray:
    """Return a matrix of ones on the diagonal whose rows are orthogonal to those of a random one."""
    draw = np.random.default_rng(seed)
    normal = draw.standard_normal((tolerate, replicas))
    normal[:, -1] = -normal[:, :-1].sum(1)
    found = np.zeros((replicas, replicas))
    for row in range(replicas):
        others = [(row + more) % replicas for more in range(1, tolerate + 1)]
        found[row, row] = 1
        found[row, others] = -np.linalg.solve(normal[:, others], normal[:, row])
    return found
