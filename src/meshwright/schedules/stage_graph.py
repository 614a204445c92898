"""The graph of stages: the stages from which each one takes its input, with branches that split and join.

Stages are numbered so that every one comes behind those that it needs. A chain is the graph in which each stage needs
the one before it; ``dependencies.py`` has that without a graph.
"""

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class StageGraph:
    """``before[s]`` are the stages whose outputs stage s needs, all of them numbered below s."""

    before: tuple[tuple[int, ...], ...]

    @cached_property
    def behind(self) -> tuple[tuple[int, ...], ...]:
        """The stages that need the output of each."""
        found: list[list[int]] = [[] for _ in self.before]
        for stage, needed in enumerate(self.before):
            for source in needed:
                found[source].append(stage)
        return tuple(map(tuple, found))
