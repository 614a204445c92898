"""Result of a comparison with a target: figures of both sides, explained and unexplained differences."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ExplainedDifference:
    """A difference that a row explains, with both figures."""

    name: str
    plan: str
    target: str
    why: str


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Something that plan and target do not have in common, with both figures."""

    name: str
    plan: str
    target: str


@dataclass
class ClassComparison:
    """One class of ranks: figures of both sides, what is explained, and what is not."""

    rank: int
    pipeline_rank: int
    seconds: float
    counts: list[dict[str, object]] = field(default_factory=list)
    groups: list[dict[str, object]] = field(default_factory=list)
    collectives: list[dict[str, object]] = field(default_factory=list)
    explained: list[ExplainedDifference] = field(default_factory=list)
    disagreements: list[Disagreement] = field(default_factory=list)
