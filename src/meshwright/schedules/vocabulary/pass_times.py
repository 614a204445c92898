"""Times of a layer, of the vocabulary's head and of a rank's share of it, in any one unit.

Only the head's matrix products count: 2·tokens·h·V FLOP for the logits, as much for the gradient of their input and as
much again for that of the table. A layer of four h × h products, a feed-forward of 8h² parameters and attention over
s tokens takes 24·tokens·h²·(1 + s/6h) in its forward pass (Megatron-LM, arXiv 2104.04473, appendix), so that the head
takes as long as V / (12h(1 + s/6h)) layers. Ignored: the lookup of embeddings, which multiplies nothing, and the
softmax itself.
"""

from collections.abc import Sequence
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


def head_in_layers(vocab: int, hidden: int, seq_len: int) -> float:
    """Return the time of the head in layers."""
    return vocab / (12 * hidden * (1 + seq_len / (6 * hidden)))


def stage_times(
    layers: Sequence[int], layer: PassTimes, head: PassTimes | None = None, message: float = 0.0
) -> StageTimes:
    """Of stages with so many layers each; ``head`` lies on the last one, if on any."""
    last = len(layers) - 1
    forward, input_, weight = (
        tuple(count * of_layer + (of_head if stage == last else 0) for stage, count in enumerate(layers))
        for of_layer, of_head in zip(_three(layer), _three(head or PassTimes(0, 0, 0)), strict=True)
    )
    return StageTimes(forward, input_, weight, message)


def durations(times: StageTimes, share: ShareTimes | None = None) -> Duration:
    """Return the time of each pass; with ``share`` of S and T too."""
    stages = seconds_by_kind(times)
    ranks = {"S": share.s, "T": share.t} if share else {}

    def of(action: Action) -> float:
        assert action.stage is not None
        return ranks[action.kind] if action.kind in ranks else stages[action.kind][action.stage]

    return of


def _three(times: PassTimes) -> tuple[float, float, float]:
    return (times.forward, times.input, times.weight)
