"""The key ``compress`` of an entry of ``synchronise``: a codec with its options.

=================  =================================================================================================
codec              content of a message
=================  =================================================================================================
``quantise``       codes of 8 or 4 bits with scales in fp32, by bucket
``ternary``        −1, 0 or 1 of 2 bits, times the largest magnitude of a tensor (TernGrad, arXiv 1705.07878)
``low_rank``       two thin factors of a matrix (PowerSGD, arXiv 1905.13727; budget: L-GreCo, arXiv 2210.17357)
``dct``            the largest coefficients of a discrete cosine transform of each chunk (DeMo, arXiv 2411.19870)
``select``         a share of the elements, chosen by their places (DeToNATION, arXiv 2502.06728)
``top_k``          the largest elements, and their places
``random_k``       elements at random places
``sketch``         a count sketch (TAGC, arXiv 2504.05638)
``lsh``            centroids of buckets of similar tokens (LSH-MoE, arXiv 2411.08446)
=================  =================================================================================================

Values are checked by ``plans/rules/synchronisation``, so that all problems of a plan are listed at once.
"""

from typing import Annotated

from pydantic import Discriminator, Tag

from meshwright.plans.files.strict_types import Number, Strict, number_or_mapping

FORMATS = ("int8", "int4", "e3m0", "tree8")
"""The element types of ``quantise``."""
CODECS = ("quantise", "ternary", "low_rank", "dct", "select", "top_k", "random_k", "sketch", "lsh")
ROUNDINGS = ("nearest", "stochastic")
PATTERNS = ("random", "stride", "slice")
"""The patterns of ``select``."""
MOMENTUM = 0.999
"""The momentum of ``dct`` and ``select`` where none is written."""


class Ternary(Strict):
    """``clip``: values beyond so many standard deviations are clipped first; None: none are."""

    clip: Number | None = None


class Budget(Strict):
    """Ranks by tensor, with no more bytes and no larger error than this rank for all."""

    budget: Number


class Dct(Strict):
    """``keep`` of ``chunk`` coefficients are sent; what is not stays in a momentum."""

    chunk: Number
    keep: Number
    momentum: Number = MOMENTUM


class Select(Strict):
    """The share ``keep`` of the elements is sent, in turn; what is not stays in a momentum."""

    pattern: str = "random"
    keep: Number
    momentum: Number = MOMENTUM


class Sketch(Strict):
    """``rows`` rows of ``width`` times the elements of a tensor."""

    width: Number
    rows: Number = 3


class Lsh(Strict):
    """``hashes`` rotations to ``width`` dims; ``distinct``: assumed buckets per token, which predictions price."""

    hashes: Number = 6
    width: Number = 16
    distinct: Number = 0.2


LowRank = Annotated[
    Annotated[Number, Tag("<number>")] | Annotated[Budget, Tag("<mapping>")], Discriminator(number_or_mapping)
]


class Compression(Strict):
    """One codec with its options. ``layers`` are a range such as ``0..9``; other tensors are sent as they are.

    ``bucket``: elements that share a scale; None: those of a tensor. ``cast``: the type of values that the codec keeps.
    """

    quantise: str | None = None
    ternary: Ternary | None = None
    low_rank: LowRank | None = None
    dct: Dct | None = None
    select: Select | None = None
    top_k: Number | None = None
    random_k: Number | None = None
    sketch: Sketch | None = None
    lsh: Lsh | None = None
    bucket: Number | None = None
    rounding: str = "nearest"
    error_feedback: bool = False
    layers: str | None = None
    cast: str | None = None

    @property
    def written(self) -> tuple[str, ...]:
        """The codecs that are written: one in a legal plan."""
        return tuple(name for name in CODECS if getattr(self, name) is not None)

    @property
    def codec(self) -> str:
        """The codec of a legal entry."""
        (name,) = self.written
        return name

    @property
    def momentum(self) -> float | None:
        """The momentum that the codec keeps values in; None: it has none."""
        kept = self.dct or self.select
        return None if kept is None else float(kept.momentum)

    @property
    def layer_range(self) -> range | None:
        """The layers that are encoded; None: all, with embedding and head."""
        if self.layers is None:
            return None
        first, _, last = self.layers.partition("..")
        return range(int(first), int(last or first) + 1)
