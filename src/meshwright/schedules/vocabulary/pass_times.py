"""Times of a layer, of the vocabulary's head and of a rank's share of it, in any one unit.

Only the head's matrix products count: 2·tokens·h·V FLOP for the logits, as much for the gradient of their input and as
much again for that of the table. A layer of four h × h products, a feed-forward of 8h² parameters and attention over
s tokens takes 24·tokens·h²·(1 + s/6h) in its forward pass (Megatron-LM, arXiv 2104.04473, appendix), so that the head
takes as long as V / (12h(1 + s/6h)) layers. Ignored: the lookup of embeddings, which multiplies nothing, and the
softmax itself.
"""

from dataclasses import dataclass

from meshwright.schedules.action import Action
from meshwright.schedules.stage_times import ShareTimes, StageTimes
from meshwright.schedules.timeline import Duration, seconds_by_kind


@dataclass(frozen=True, slots=True)
class PassTimes:
    """F, I and W of one micro-batch: of a layer, or of the head."""

    forward: float
    input: float
    weight: float

    @property
    def whole(self) -> float:
        """All three."""
        return self.forward + self.input + self.weight


def durations(times: StageTimes, share: ShareTimes | None = None) -> Duration:
    """Return the time of each pass; with ``share`` of S and T too."""
    stages = seconds_by_kind(times)
    ranks = {"S": share.s, "T": share.t} if share else {}

    def of(action: Action) -> float:
        assert action.stage is not None
        return ranks[action.kind] if action.kind in ranks else stages[action.kind][action.stage]

    return of
