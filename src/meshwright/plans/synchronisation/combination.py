"""The keys ``combine`` and ``with`` of an entry of ``synchronise``: how replicas' gradients are combined, and of which.

With rank i's labels lᵢ of L and its mean gradient gᵢ, every rule works on rows n·(lᵢ/L)·gᵢ, whose mean is the gradient
of the whole batch:

================  ==================================================================================================
``combine``       result
================  ==================================================================================================
``mean``          the mean
``median``        the median of each element
``trimmed_mean``  the mean of each element without the f smallest and the f largest values
``krum``          the row with the least sum of squared distances to the n − f − 2 nearest ones (arXiv 1703.02757)
``flag``          Y·Yᵀ of the mean, Y the r-dim subspace next to the normalised rows (arXiv 2302.05865); the mean is
                  that of the ``raw`` rows, or of ``normalised`` ones
``coded``         the exact sum, also without the rows of s late replicas: each computes s + 1 shares of the batch
                  (arXiv 1612.03301)
================  ==================================================================================================

``with: {quorum: k}`` takes the k replicas that end their passes first (backup workers, arXiv 1604.00981); ``dynamic``
chooses k from arrivals (arXiv 2004.14696). Values are checked by ``plans/rules/synchronisation``.
"""

from typing import Annotated

from pydantic import Discriminator, JsonValue, Tag

from meshwright.plans.files.strict_types import Number, Strict, name_or_number

MEAN, MEDIAN = "mean", "median"
RULES = ("trimmed_mean", "krum", "flag", "coded", "stale")
"""The rules with options; ``stale`` is parsed and not supported yet."""
NAMED_RULES = (MEAN, MEDIAN)
ROW_RULES = (MEDIAN, "trimmed_mean", "krum", "flag")
"""Rules that need each replica's row."""
OF_WHOLE_GRADIENTS = ("krum", "flag")
"""Rules that go by products of whole rows, over all ranks of a replica."""
SCHEMES = ("gc", "sr-sgc", "m-sgc")
"""Gradient coding, and its two sequential forms (Krishnan et al., ICLR 2023), which are simulated only."""
PLAIN_CODE = "gc"
RAW, NORMALISED = "raw", "normalised"
AVERAGES = (RAW, NORMALISED)
"""Rows as they are, or all with their median norm."""
ALL = "all"
DYNAMIC = "dynamic"
PARTNERS = ("quorum", "graph", "server", "tree")
"""The ways to choose partners; all but ``quorum`` are parsed and not supported yet."""


class Flag(Strict):
    """``rank``: dims of the subspace; ``average``: the rows whose mean is projected to it."""

    rank: Number
    average: str = RAW


class Coded(Strict):
    """``tolerate``: late replicas of which the code needs nothing. The other keys are those of sequential codes."""

    tolerate: Number | None = None
    scheme: str = PLAIN_CODE
    burst: Number | None = None
    window: Number | None = None
    stragglers: Number | None = None


class Combination(Strict):
    """One rule with its options."""

    trimmed_mean: Number | None = None
    krum: Number | None = None
    flag: Flag | None = None
    coded: Coded | None = None
    stale: JsonValue = None

    @property
    def written(self) -> tuple[str, ...]:
        """The rules that are written: one in a legal plan."""
        return tuple(name for name in RULES if getattr(self, name) is not None)

    @property
    def name(self) -> str:
        """The rule of a legal entry, the first one of others."""
        return next(iter(self.written), MEAN)


class Partners(Strict):
    """The replicas that an exchange goes by."""

    quorum: (
        Annotated[
            Annotated[Number, Tag("<number>")] | Annotated[str, Tag("<name>")], Discriminator(name_or_number)
        ]
        | None
    ) = None
    graph: JsonValue = None
    server: JsonValue = None
    tree: JsonValue = None

    @property
    def written(self) -> tuple[str, ...]:
        """The ways that are written: one in a legal plan."""
        return tuple(name for name in PARTNERS if getattr(self, name) is not None)
