"""Collectives that one rank sends in a step, by the Program.

A step is a row of *moments*. What is in one moment runs side by side, so that it has no order of its own: the gather
of the next layer and the reduction of the one before, beside a layer's computation. All else follows one another.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from meshwright.program.layouts.rank_mesh import strides
from meshwright.program.model_states.data_parallel_collectives import gathers, reductions
from meshwright.program.model_states.state_elements import block_elements
from meshwright.program.pass_items import Collective, PassKind, exchanges_of
from meshwright.program.program import Program
from meshwright.schedules.action import COMPUTE_KINDS, Action

Members = tuple[int, ...]
MESSAGES = {
    "SEND_F": ("send", 1),
    "SEND_B": ("send", -1),
    "RECV_F": ("receive", -1),
    "RECV_B": ("receive", 1),
}
"""Actions that are messages: which end of one, and where its other end lies among the stages."""


@dataclass(frozen=True, slots=True)
class PlannedCollective:
    """One collective of one rank: the members of its group, its logical bytes, and what it is for."""

    kind: str
    axes: tuple[str, ...]
    members: Members
    bytes: int
    what: str


ConcurrentCollectives = tuple[PlannedCollective, ...]


@dataclass(frozen=True)
class RankView:
    """The Program as the first rank of one pipeline rank sees it."""

    program: Program
    pipeline_rank: int

    @property
    def rank(self) -> int:
        """The rank itself: the first of its class."""
        grid = self.program.parts.only.grid
        return self.pipeline_rank * int(strides(grid.sizes, grid.order)["pp"])

    def members(self, axes: tuple[str, ...]) -> Members:
        """Return the ranks of this rank's group over ``axes``, sorted."""
        if axes == ("world",):
            return tuple(range(self.program.parts.ranks))
        if axes == ("tied",):
            return tuple(sorted(RankView(self.program, end).rank for end in self.program.end_ranks))
        return tuple(sorted(self.program.parts.only.mesh_with(axes).group_of(self.rank, axes)))

    def step(self) -> Iterator[ConcurrentCollectives]:
        """Everything that this rank sends in a step, in the Program's order."""
        for action in self.program.lists[self.pipeline_rank]:
            if action.kind in COMPUTE_KINDS:
                yield from self._pass(action)
            elif action.kind in MESSAGES:
                yield (self._message(action),)
            else:
                named = self.program.collectives.get((action.stage, action.kind), ())
                yield tuple(map(self._sent, named))

    def _pass(self, action: Action) -> Iterator[ConcurrentCollectives]:
        assert action.stage is not None
        for segment in self.program.bodies[action.stage, action.kind]:
            for _ in range(segment.count):
                yield tuple(self._sent(collective) for collective in segment.overlapped)
                if segment.block is not None:
                    yield from self._block(segment.block, segment.kind)

    def _block(self, block: int, kind: PassKind) -> Iterator[ConcurrentCollectives]:
        for item in self.program.block_items[block, kind]:
            yield tuple(self._sent(collective) for collective in exchanges_of(item))

    def _sent(self, collective: Collective) -> PlannedCollective:
        axes, size, what = (
            collective.axes,
            round(float(collective.logical_bytes)),
            self._name(collective.what),
        )
        if collective.kind == "ring":
            what = "backward" if collective.phase == "I" else "forward"
        return PlannedCollective(collective.kind, axes, self.members(axes), size, what)

    def _name(self, what: str) -> str:
        """Blocks by their kind: units of the same kind are alike to every target."""
        index = what.removeprefix("block ")
        return self.program.blocks[int(index)].kind if index != what else what

    def _message(self, action: Action) -> PlannedCollective:
        assert action.stage is not None
        kind, ahead = MESSAGES[action.kind]
        other = RankView(self.program, self.program.stages[action.stage + ahead].rank).rank
        return PlannedCollective(
            kind, ("pp",), tuple(sorted((self.rank, other))), self.program.parts.only.message_bytes, "message"
        )

    def units(self, sent: PlannedCollective, sharding: str) -> tuple[PlannedCollective, ...]:
        """Return a whole stage's traffic block by block, and other traffic unchanged."""
        word, _, index = sent.what.partition(" ")
        if word != "stage":
            return (sent,)
        program = self.program
        ends = program.stages[0].rank == program.stages[-1].rank
        held = block_elements(program.blocks, program.parts.only.shape, ends_together=ends)
        parts: list[PlannedCollective] = []
        for block in program.stages[int(index)].blocks:
            name = f"block {block}"
            made = [
                *gathers(held[block], program.stack, name),
                *reductions(held[block], sharding, program.parts.only.shape, program.stack, name),
            ]
            parts += [self._sent(c) for c in made if (c.kind, c.axes) == (sent.kind, sent.axes)]
        return tuple(parts)
