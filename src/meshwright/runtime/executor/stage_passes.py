"""Run F, I and W of one stage on one micro-batch: its blocks in turn, with the Program's overlapped collectives.

The Program's body of a pass is a list of segments: a number of equal blocks, and the collectives that overlap each.
While a block computes, the next one's parameters are gathered and the previous one's gradients reduced; the collectives
of a segment without a block overlap nothing. This module expands the segments and runs them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

from meshwright.model.named_tensors import TOKEN_TABLE
from meshwright.program.lowering.pass_bodies import units_needed
from meshwright.program.pass_items import Collective, PassKind, Segment
from meshwright.program.reshard import Reshard, Way
from meshwright.runtime.executor.activation_offload import OffloadedPass
from meshwright.runtime.executor.block_passes import BlockRun, PendingExchange, live_bytes
from meshwright.runtime.executor.intermediate_values import StageValues, Value, together
from meshwright.runtime.executor.operator_call import MicroBatch, OperatorCall
from meshwright.runtime.executor.parameter_prefetch import BlockOfUnit, ParameterFetches
from meshwright.runtime.executor.rank_plan import (
    AnyUnit,
    RankPlan,
    dealt,
    own_exchanges,
    trained,
)
from meshwright.schedules.action import MAKE_GRADIENTS


@dataclass
class StageRun:
    """A stage on one micro-batch, from F until W."""

    plan: RankPlan
    stage: int
    batch: MicroBatch
    runs: list[BlockRun] = field(init=False)
    passed_back: bool = False
    parcel: OffloadedPass | None = None

    def __post_init__(self) -> None:
        last = self.plan.program.parts.of_blocks[self.plan.places[self.stage][-1].block]
        further = iter(self.batch.on(last).further)
        shared = StageValues()
        self.runs = [
            BlockRun(block, {op.name: OperatorCall(self._unit, batch) for op in block.operators}, shared)
            for place, block in zip(self.plan.places[self.stage], self.plan.blocks[self.stage], strict=True)
            for own in (self.batch.on(self.plan.program.parts.of_blocks[place.block]),)
            for batch in (next(further, self.batch) if block.block.predicts_further else own,)
        ]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """F: return the stage's output, or the loss of the last stage.

        Multi-token-prediction layers branch off the main stream and run one after another.
        """
        main, losses = x, []
        for place in self._pass("F"):
            if isinstance(place, Reshard):
                x = main = self._resharded(place, "F", main)
                continue
            run = self.runs[place]
            if not run.plan.block.predicts_further:
                x = main = run.forward(main)
            elif self.batch.further:
                x = run.forward(x)
                losses.append(run.loss)
        return sum(losses, start=main)

    def input_gradient(self, g: torch.Tensor | None) -> torch.Tensor | None:
        """I: return the gradient of the stage's input; None for the first stage."""
        self._unpack()
        streams = _Streams(g)
        for place in self._pass("I"):
            self._back_through(place, streams)
        self.passed_back = True
        return streams.together

    def weight_gradient(self) -> None:
        """W: compute the gradients of all matrices that I has left."""
        for place in self._pass("W"):
            if not isinstance(place, Reshard):
                self.runs[place].weight_gradient()

    def backward(self, g: torch.Tensor | None) -> torch.Tensor | None:
        """B: run I and W of each block in turn."""
        self._unpack()
        streams = _Streams(g)
        for place in self._pass("B"):
            self._back_through(place, streams)
            if not isinstance(place, Reshard):
                self.runs[place].weight_gradient()
        return streams.together

    def _back_through(self, place: "int | Reshard", streams: "_Streams") -> None:
        """Run the input gradient of a block, or move gradients to the layout before."""
        if isinstance(place, Reshard):
            streams.main, streams.branch = self._resharded(place, "B", streams.together), None
        else:
            streams.back_through(self.runs[place])

    def _resharded(self, reshard: Reshard, way: Way, value: torch.Tensor) -> torch.Tensor:
        """Return a value in the layout of the next block of a pass."""
        communicator = self.plan.communicator
        exchange = self.plan.reshard_exchange(reshard, way)
        what = "activations" if way == "F" else "gradients of activations"
        return exchange.run(communicator, value, what)

    def offload(self) -> None:
        """Start to copy the saved tensors of the first layers to the host."""
        stage, blocks = self.plan.program.stages[self.stage], self.plan.program.blocks
        layers = [run for run, b in zip(self.runs, stage.blocks, strict=True) if blocks[b].kind == "layer"]
        out = layers[: self.plan.program.offloaded_layers[self.stage]]
        self.parcel = OffloadedPass(self.plan.host)
        self.parcel.out(visit for run in out for visit in run.visits.values())

    def let_go(self) -> None:
        """End the copy and free the device memory."""
        assert self.parcel is not None, "nothing went out"
        self.parcel.let_go()

    def reload(self) -> None:
        """Start to copy the saved tensors back."""
        assert self.parcel is not None, "nothing went out"
        self.parcel.back()

    def live_bytes(self) -> int:
        """Return the bytes on the device that are saved for later passes."""
        kept = live_bytes(visit for run in self.runs for visit in run.visits.values())
        return kept + (self.parcel.device_bytes() if self.parcel else 0)

    def _unpack(self) -> None:
        if self.parcel is not None:
            self.parcel.unpack()
            self.parcel = None

    def _unit(self, name: str) -> AnyUnit:
        return self.plan.unit_of[name]

    def _makes_weight_gradients(self, kind: PassKind, place: int) -> bool:
        """Return true if a pass computes a block's weight gradients; I does so for the head."""
        return kind in MAKE_GRADIENTS or (kind == "I" and self.runs[place].plan.block.kind == "head")

    def _pass(self, kind: PassKind) -> Iterator[int | Reshard]:
        """Yield the indices of a pass's blocks in order, running each one's collectives concurrently.

        Between blocks of different layouts yield the change.
        """
        program = self.plan.program
        body = program.bodies[self.stage, kind]
        order = list(range(len(self.runs)))
        if kind != "F":
            order.reverse()
        overlap = _OverlappedExchanges(self.plan, self.stage, kind, order)
        lots = self.plan.hosting.lots if self.plan.hosting else None
        at = 0
        for segment in body:
            if segment.reshard is not None:
                yield segment.reshard
                continue
            if segment.block is None:
                overlap.alone(segment, at)
                continue
            for _ in range(segment.count):
                overlap.fetches.before_block(at)
                going = overlap.begin(segment.overlapped, at)
                if lots:
                    lots.current = (id(self), order[at])
                yield order[at]
                for exchange in going:
                    exchange.finish()
                overlap.leave(at)
                if lots and self._makes_weight_gradients(kind, order[at]):
                    lots.leave((id(self), order[at]))
                at += 1
        overlap.reduce_rest()
        if lots:
            lots.end()


@dataclass
class _Streams:
    """Gradients of the main stream and of the multi-token-prediction branch in a backward pass."""

    main: Value
    branch: Value = None

    def back_through(self, run: BlockRun) -> None:
        """Run a block's input gradient; a block of the main stream takes the sum of both gradients."""
        if run.plan.block.predicts_further:
            self.branch = run.input_gradient(self.branch)
        else:
            self.main, self.branch = run.input_gradient(self.together), None

    @property
    def together(self) -> Value:
        """The sum of both gradients."""
        return together(self.branch, self.main)


@dataclass
class _OverlappedExchanges:
    """Gathers for the next block and reductions of the previous one, in a pass in ``order``."""

    plan: RankPlan
    stage: int
    kind: PassKind
    order: Sequence[int]
    needed: tuple[tuple[BlockOfUnit, ...], ...] = field(init=False)
    last_use: dict[int, int] = field(init=False)
    fetches: ParameterFetches = field(init=False)
    reduced: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.needed = self._needed()
        self.fetches = ParameterFetches(self.needed, [self._used(at) for at in range(len(self.order))])
        self.last_use = {id(unit): at for at in range(len(self.order)) for unit, _ in self._used(at)}

    def alone(self, segment: Segment, at: int) -> None:
        """Run a segment without a block: the first gather of a pass, or its last reduction."""
        if segment.overlapped[0].kind == "all-gather" and at == 0:
            going = self._gathers(segment.overlapped, 0)
        else:
            going = self._reductions(segment.overlapped, at - 1)
        for exchange in going:
            exchange.finish()

    def begin(self, items: Sequence[Collective], at: int) -> list[PendingExchange]:
        """Start the gathers of the next block and the reduction of the previous one."""
        ahead = self.needed[at + 1] if at + 1 < len(self.order) else ()
        gathers = [item for item in items if self._gathers_parameters(item)]
        going = self._gathers(gathers, at + 1) if gathers and ahead else []
        reductions = [item for item in items if not self._gathers_parameters(item)]
        if reductions:
            return going + self._reductions(reductions, at - 1)
        self._reduce_alone(at - 1)
        return going

    def _gathers_parameters(self, item: Collective) -> bool:
        """Return false for reductions too, some of which gather messages of encoded gradients."""
        entry = None if item.entry is None else self.plan.program.synchronise[item.entry]
        return item.kind == "all-gather" and (entry is None or entry.state == "parameter")

    def reduce_rest(self) -> None:
        """Reduce the gradients of the last block where nothing is exchanged for it, so that they can leave."""
        self._reduce_alone(len(self.order) - 1)

    def _reduce_alone(self, at: int) -> None:
        """Take the gradients of a block that no other rank shares, where gradients leave after their reduction."""
        hosting = self.plan.hosting
        waits = hosting is not None and hosting.in_passes and self.kind in MAKE_GRADIENTS
        if waits and at >= 0 and at not in self.reduced:
            for exchange in self._reductions((), at):
                exchange.finish()

    def leave(self, at: int) -> None:
        """Free the units that no later block of this pass needs."""
        self.fetches.after_block(at)
        if not self._gathers_by_layer(at):
            return
        for unit, _ in self._used(at):
            if self.last_use[id(unit)] == at:
                unit.free()

    def _gathers(self, items: Sequence[Collective], at: int) -> list[PendingExchange]:
        self.fetches.before_gather(at)
        units = [of.unit for of in self.needed[at]]
        if self.plan.program.parts[items[0].part].mode.gather != "per-layer":
            every = self.plan.units_of(self.stage)
            units = [unit for unit in every if unit.communicator.part_index == items[0].part]
        return [PendingExchange(unit.gather(own)).begin() for unit, own in dealt(units, items)]

    def _reductions(self, items: Sequence[Collective], at: int) -> list[PendingExchange]:
        """Start the reductions of the block at a place of the order."""
        self.reduced.add(at)
        units = trained(self.plan.units[self.stage][self.order[at]])
        here = {unit.communicator.part_index for unit in units}
        others = {item.part for item in items} - here
        if others:
            every = self.plan.trained_units_of(self.stage)
            units += tuple(unit for unit in every if unit.communicator.part_index in others)
        return [PendingExchange(unit.reduce(own_exchanges(unit, items))).begin() for unit in units]

    def _needed(self) -> tuple[tuple[BlockOfUnit, ...], ...]:
        """Return the units to gather for the block at each place of the order, and the blocks of them to fetch."""
        blocks = [self.plan.places[self.stage][place].block for place in self.order]
        needed = units_needed(blocks, self.kind, self.plan.shared)
        return tuple(
            tuple(of for b in of_blocks for of in (self._own(at) if b == block else self._table()))
            for at, (block, of_blocks) in enumerate(zip(blocks, needed, strict=True))
        )

    def _own(self, at: int) -> tuple[BlockOfUnit, ...]:
        place = self.order[at]
        units = self.plan.units[self.stage][place]
        several = not self._gathers_by_layer(at)
        return tuple(BlockOfUnit(unit, place if several else 0) for unit in units)

    def _gathers_by_layer(self, at: int) -> bool:
        """Return true if the block at a place of the order is gathered by itself."""
        block = self.plan.places[self.stage][self.order[at]].block
        return self.plan.program.parts.of(block).mode.gather == "per-layer"

    def _table(self) -> tuple[BlockOfUnit, ...]:
        return (BlockOfUnit(self.plan.unit_of[TOKEN_TABLE], 0),) if self.plan.shared else ()

    def _used(self, at: int) -> tuple[BlockOfUnit, ...]:
        """Return the units that the block at a place of the order uses."""
        shared, block = self.plan.shared, self.plan.places[self.stage][self.order[at]].block
        return (*self._own(at), *self._table()) if shared and shared[1] == block else self._own(at)
