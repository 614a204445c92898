"""Locality-sensitive hashing of tokens on their way to experts (LSH-MoE, arXiv 2411.08446), and its cost. Pure.

Rows of one rank for one expert that fall into one bucket travel as their centroid c, and the result of row x is
E(c) + (x − c). Cross-polytope hashing (Andoni et al., arXiv 1509.02897) projects a token to ``width`` dims with a
random matrix and takes the dim of the largest magnitude, with its sign: one of 2·width codes. Rows are in one bucket
if all ``hashes`` codes are equal.

Assumed: the matrices are Gaussian, where the paper says rotations; they follow from seed and layer, so that all ranks
and both passes have the same ones. Tokens are hashed once, whatever the number of their experts.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from meshwright.plans.synchronisation.synchronisation import Synchronisation

ROW_PASSES: Mapping[str, int] = {"F": 5, "I": 4}
"""Times that elements of rows are read or written for buckets, in the forward pass and for gradients of inputs.

Forward: read for the means; row, centroid and the expert's result read, and the row's result written. Backward: read
for the sums; row and its bucket's gradient read, and the row's gradient written. Sums in caches are not counted, nor
is the order of experts, which other dispatches make too.
"""


@dataclass(frozen=True, slots=True)
class TokenHashing:
    """The hashing of entry number ``entry`` of ``synchronise``; ``distinct``: assumed buckets per row."""

    entry: int
    hashes: int
    width: int
    distinct: float


def token_hashing(entries: Iterable[Synchronisation], ep: int) -> TokenHashing | None:
    """Return the hashing of a legal plan's tokens; None if there is none, or nothing to exchange."""
    for number, entry in enumerate(entries if ep > 1 else ()):
        lsh = entry.compress.lsh if entry.compress and entry.state == "expert_token" else None
        if lsh is not None:
            return TokenHashing(number, int(lsh.hashes), int(lsh.width), float(lsh.distinct))
    return None


def hashing_flops_per_token(hashing: TokenHashing, hidden: int) -> int:
    """Return the FLOPs of a token's projections, in the forward pass: a row of tokens × hidden × hashes·width."""
    return 2 * hidden * hashing.hashes * hashing.width
