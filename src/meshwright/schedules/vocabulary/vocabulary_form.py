"""The signature of all forms of a spread vocabulary, and the facts about each in the table of forms."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from meshwright.errors import Problem, UnsupportedError
from meshwright.schedules.action import Action, ActionLists
from meshwright.schedules.dependencies import StageChains
from meshwright.schedules.pipeline import Pipeline
from meshwright.schedules.stage_times import ShareTimes
from meshwright.schedules.vocabulary.pass_times import PassTimes

Maker = Callable[[ActionLists, Pipeline, StageChains, ShareTimes, int], list[list[Action]]]
"""``make(lists, pipeline, ways, share, late)`` → the lists with S and T; ``ways`` knows of the barriers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VocabularyForm:
    """A form as the table of forms lists it.

    Between F and the backward pass of the last stage all ranks wait ``barriers`` times for each other. With two, S is
    the logits and T both gradients. With one, S makes also what the gradient of the input is summed from, still
    without the softmax's sum, and T only the gradient of the table. ``exposed``: nothing overlaps the exchanges.
    ``only``: the one schedule that the form is laid out for.
    """

    make: Maker
    barriers: int
    summary: str
    exposed: bool = False
    only: str | None = None

    def share(self, head: PassTimes, ranks: int) -> ShareTimes:
        """S and T of one of ``ranks`` equal shares of the head."""
        if self.barriers > 1:
            return ShareTimes(head.forward / ranks, (head.input + head.weight) / ranks)
        return ShareTimes((head.forward + head.input) / ranks, head.weight / ranks)

    def ways(self, ways: StageChains, ranks: int) -> StageChains:
        """Return a schedule's ways with the vocabulary spread over its ranks."""
        return replace(ways, barriers=self.barriers, ranks=ranks)

    def lists(
        self, lists: ActionLists, pipeline: Pipeline, ways: StageChains, share: ShareTimes, late: int = 1
    ) -> list[list[Action]]:
        """Return a schedule's lists with S and T; ``pipeline`` has the real times, ``ways`` are the schedule's own.

        With one barrier T of up to ``late`` micro-batches may wait on each rank.
        """
        if ways.chains > 1:
            rule = "micro-batches end on two ranks, and a vocabulary is spread behind one last stage"
            raise UnsupportedError(Problem("schedule", f"{ways.chains} chains", rule, "another schedule"))
        return self.make(lists, pipeline, self.ways(ways, pipeline.ranks), share, late)
