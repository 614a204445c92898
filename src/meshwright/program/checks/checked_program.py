"""A Program and the model that it was made for: the input of the rules of ``validate_program.py``."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from meshwright.errors import Problem
from meshwright.model.graph import ModelGraph
from meshwright.program.program import Program, Stage
from meshwright.schedules.action import Action


@dataclass(frozen=True)
class CheckedProgram:
    """``places[rank]`` says where an action stands in that rank's list (the last place of one that is there twice)."""

    program: Program
    model: ModelGraph

    @cached_property
    def places(self) -> tuple[dict[Action, int], ...]:
        """Position of every action, per pipeline rank."""
        lists = self.program.lists
        return tuple({action: at for at, action in enumerate(actions)} for actions in lists)

    @property
    def placement(self) -> tuple[int, ...]:
        """The pipeline rank of every stage."""
        return tuple(stage.rank for stage in self.program.stages)

    @property
    def tied_ranks(self) -> tuple[int, ...]:
        """The two ranks that each hold a copy of the embedding table with gradients; empty where there is one copy."""
        ends = self.program.end_ranks
        tied = self.model.tied_gradients and not self.program.stack.optimizer.forward_only
        return ends if tied and len(ends) > 1 else ()

    def shares_of(self, rank: int) -> tuple[Stage, ...]:
        """Return a rank's share of the vocabulary, if it is spread."""
        return tuple(share for share in self.program.shares if share.rank == rank)

    def misordered(self, rank: int, first: Action, then: Action, why: str) -> Iterator[Problem]:
        """Yield a problem where both actions are in a rank's list in the wrong order."""
        places = self.places[rank]
        if first in places and then in places and places[first] > places[then]:
            yield Problem(f"lists.{rank}", f"{then} … {first}", why, f"{first} before {then}")


Rule = Callable[[CheckedProgram], Iterator[Problem]]
