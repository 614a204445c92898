"""F, I and W of one stage on one micro-batch: its blocks in turn, with what the Program puts beside them.

The Program's body of a pass is a row of segments: so many equal blocks, and collectives beside each. Beside a block
come the parameters of the next one and go the gradients of the one before; what a segment without a block exchanges
has nothing to hide behind. This expands the row and runs it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

from meshwright.program.items import Collective, PassKind, Segment
from meshwright.program.passes import units_needed
from meshwright.runtime.block_run import BlockRun, Exchanging, live_bytes
from meshwright.runtime.host_copies import Parcel
from meshwright.runtime.rank_plan import TABLE, RankPlan
from meshwright.runtime.unit import Unit
from meshwright.runtime.values import Value, together
from meshwright.runtime.visit import MicroBatch, Visit


@dataclass
class StageRun:
    """A stage at work on one micro-batch, from F until W."""

    plan: RankPlan
    stage: int
    batch: MicroBatch
    runs: list[BlockRun] = field(init=False)
    passed_back: bool = False
    parcel: Parcel | None = None

    def __post_init__(self) -> None:
        further = iter(self.batch.further)
        self.runs = [
            BlockRun(block, {op.name: Visit(self._unit, batch) for op in block.operators})
            for block in self.plan.blocks[self.stage]
            for batch in (next(further, self.batch) if block.block.predicts_further else self.batch,)
        ]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The stage's output; the loss of the last stage.

        What predicts further tokens stands beside the main stream, each behind the one before.
        """
        main, losses = x, []
        for place in self._pass("F"):
            run = self.runs[place]
            if not run.plan.block.predicts_further:
                x = main = run.forward(main)
            elif self.batch.further:
                x = run.forward(x)
                losses.append(run.loss)
        return sum(losses, start=main)

    def input_gradient(self, g: torch.Tensor | None) -> torch.Tensor | None:
        """The gradient of the stage's input; None for the first stage."""
        self._unpack()
        streams = _Streams(g)
        for place in self._pass("I"):
            streams.back_through(self.runs[place])
        self.passed_back = True
        return streams.together

    def weight_gradient(self) -> None:
        """Gradients of all matrices, that have waited since I."""
        for place in self._pass("W"):
            self.runs[place].weight_gradient()

    def backward(self, g: torch.Tensor | None) -> torch.Tensor | None:
        """I and W of each block in turn."""
        self._unpack()
        streams = _Streams(g)
        for place in self._pass("B"):
            streams.back_through(self.runs[place])
            self.runs[place].weight_gradient()
        return streams.together

    def offload(self) -> None:
        """Begin to copy what the first layers keep to the host."""
        stage, blocks = self.plan.program.stages[self.stage], self.plan.program.blocks
        layers = [run for run, b in zip(self.runs, stage.blocks, strict=True) if blocks[b].kind == "layer"]
        out = layers[: self.plan.program.offloaded_layers[self.stage]]
        self.parcel = Parcel(self.plan.host)
        self.parcel.out(visit for run in out for visit in run.visits.values())

    def let_go(self) -> None:
        """Keep it on the host alone."""
        assert self.parcel is not None, "nothing went out"
        self.parcel.let_go()

    def reload(self) -> None:
        """Begin to copy it back."""
        assert self.parcel is not None, "nothing went out"
        self.parcel.back()

    def live_bytes(self) -> int:
        """Bytes on the device that are kept for later passes."""
        kept = live_bytes(visit for run in self.runs for visit in run.visits.values())
        return kept + (self.parcel.device_bytes() if self.parcel else 0)

    def _unpack(self) -> None:
        if self.parcel is not None:
            self.parcel.unpack()
            self.parcel = None

    def _unit(self, name: str) -> Unit:
        return self.plan.unit_of[name]

    def _pass(self, kind: PassKind) -> Iterator[int]:
        """The places of a pass in order; beside each of them its collectives run."""
        program = self.plan.program
        body = program.bodies[self.stage, kind]
        order = list(range(len(self.runs)))
        if kind != "F":
            order.reverse()
        beside = _Beside(self.plan, self.stage, kind, order)
        at = 0
        for segment in body:
            if segment.block is None:
                beside.alone(segment, at)
                continue
            for _ in range(segment.count):
                going = beside.begin(segment.beside, at)
                yield order[at]
                for exchange in going:
                    exchange.finish()
                beside.leave(at)
                at += 1


@dataclass
class _Streams:
    """Gradients of the main stream and of that beside it, in a backward pass."""

    main: Value
    beside: Value = None

    def back_through(self, run: BlockRun) -> None:
        """Pass a block; one of the main stream has what all that read its result have found."""
        if run.plan.block.predicts_further:
            self.beside = run.input_gradient(self.beside)
        else:
            self.main, self.beside = run.input_gradient(self.together), None

    @property
    def together(self) -> Value:
        """Their sum."""
        return together(self.beside, self.main)


@dataclass
class _Beside:
    """Gathers ahead of a block and reductions behind it, of a pass in ``order``."""

    plan: RankPlan
    stage: int
    kind: PassKind
    order: Sequence[int]
    needed: tuple[tuple[Unit, ...], ...] = field(init=False)
    last_use: dict[int, int] = field(init=False)

    def __post_init__(self) -> None:
        self.needed = self._needed()
        self.last_use = {id(unit): at for at in range(len(self.order)) for unit in self._used(at)}

    def alone(self, segment: Segment, at: int) -> None:
        """What runs with nothing beside it: the first gather of a pass, or its last reduction."""
        if segment.beside[0].kind == "all-gather" and at == 0:
            going = self._gathers(segment.beside, 0)
        else:
            going = self._reductions(segment.beside, at)
        for exchange in going:
            exchange.finish()

    def begin(self, items: Sequence[Collective], at: int) -> list[Exchanging]:
        """Start the gathers of the next block and the reduction of the last one."""
        if not items:
            return []
        ahead = self.needed[at + 1] if at + 1 < len(self.order) else ()
        gathers = [item for item in items if item.kind == "all-gather"]
        going = self._gathers(gathers, at + 1) if gathers and ahead else []
        reductions = [item for item in items if item.kind != "all-gather"]
        return going + (self._reductions(reductions, at) if reductions else [])

    def leave(self, at: int) -> None:
        """Free what no later block of this pass needs."""
        if self.plan.program.mode.gather != "per-layer":
            return
        for unit in self._used(at):
            if self.last_use[id(unit)] == at:
                unit.free()

    def _gathers(self, items: Sequence[Collective], at: int) -> list[Exchanging]:
        units = self.needed[at] if self.plan.program.mode.gather == "per-layer" else self._units_of_stage()
        going, left = [], list(items)
        for unit in units:
            mine = unit.layout.own(left)[: unit.layout.parts > 1]
            going.append(Exchanging(unit.gather(mine)).begin())
            left = [item for item in left if item not in mine]
        assert not left, (units, items)
        return going

    def _reductions(self, items: Sequence[Collective], at: int) -> list[Exchanging]:
        """Those of the units of the block before a place of the order."""
        units = self.plan.units[self.stage][self.order[at - 1]]
        return [Exchanging(unit.reduce(unit.layout.own(items))).begin() for unit in units]

    def _needed(self) -> tuple[tuple[Unit, ...], ...]:
        """The units that are gathered for the block at each place of the order."""
        blocks = [self.plan.places[self.stage][place].block for place in self.order]
        needed = units_needed(blocks, self.kind, self.plan.shared)
        own = [self.plan.units[self.stage][place] for place in self.order]
        table = (self.plan.unit_of[TABLE],) if self.plan.shared else ()
        return tuple(
            tuple(unit for b in of_blocks for unit in (units if b == block else table))
            for units, block, of_blocks in zip(own, blocks, needed, strict=True)
        )

    def _used(self, at: int) -> tuple[Unit, ...]:
        """The units that a block at a place of the order works with."""
        place = self.order[at]
        own = self.plan.units[self.stage][place]
        shared = self.plan.shared
        is_tied_head = shared is not None and self.plan.places[self.stage][place].block == shared[1]
        return (*own, self.plan.unit_of[TABLE]) if is_tied_head else own

    def _units_of_stage(self) -> tuple[Unit, ...]:
        return self.plan.units_of(self.stage)
