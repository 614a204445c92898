"""Record what a rank adds to gradients, and its states, while it runs with states in a plan's own types."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import torch

from meshwright.program.rank_units.unit_layout import Cut
from meshwright.runtime.executor.interpreter import finish_validation
from meshwright.runtime.executor.rank import Rank
from meshwright.runtime.launch.forked_ranks import ProgressCallback
from meshwright.runtime.state.gradient_buffers import Addition
from meshwright.runtime.state.on_host.gradient_offload import OffloadedGradients
from meshwright.runtime.state.on_host.offloaded_unit import OffloadedUnit
from meshwright.runtime.state.post_validation import StepResult
from meshwright.runtime.state.shard_pieces import Piece, pieces_of
from meshwright.runtime.state.sharded_unit import Unit
from meshwright.runtime.verify.verify_case import VerifyCase, micro_batches

PARAMETER = "parameter"


@dataclass(frozen=True)
class Span:
    """Elements of a parameter that a rank owns: a range of the flat local tensor."""

    name: str
    cuts: tuple[Cut, ...]
    start: int
    stop: int


@dataclass
class UnitRecord:
    """A unit's layout, its additions to gradients step by step, and its states after the last step.

    ``summed`` are the names of gradients that are partial over tp. ``states``: for each span the parameter and its
    moments, in fp64, and the distance between neighbouring values of their types there. ``sent`` are ranges of flat
    tensors whose additions are rounded to the type of the wire, because they leave for the host.
    """

    shapes: dict[str, tuple[int, ...]]
    cuts: dict[str, tuple[Cut, ...]]
    summed: frozenset[str]
    spans: tuple[Span, ...]
    sent: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    additions: list[list[Addition]] = field(default_factory=list)
    states: list[dict[str, torch.Tensor]] = field(default_factory=list)
    spacings: list[dict[str, torch.Tensor]] = field(default_factory=list)


@dataclass
class StateRecord:
    """A rank's units by name, its results, and its pieces of all parameters and buffers before each step."""

    pipeline_rank: int
    units: dict[str, UnitRecord]
    results: list[StepResult] = field(default_factory=list)
    parameters: list[list[Piece]] = field(default_factory=list)


def record_states(trial: VerifyCase, rank: Rank, report: ProgressCallback) -> StateRecord:
    """Run all steps of a case and record them."""
    units = {unit.name: unit for unit in rank.plan.trained_units}
    record = StateRecord(rank.plan.pipeline_rank, {name: _layout(unit) for name, unit in units.items()})
    states = rank.interpreter.states
    states.after_norm = record.results.append
    for step, batch in enumerate(trial.batches()):
        record.parameters.append(list(_parameters(rank)))
        for unit in units.values():
            unit.gradients.additions = []
        rank.interpreter.step(micro_batches(trial, batch, rank.place.rank, rank.communicator.device))
        for name, unit in units.items():
            record.units[name].additions.append(unit.gradients.additions or [])
        if rank.place.rank == 0:
            report(f"step {step + 1} with narrow states", 0.0)
    finish_validation(rank.interpreter)
    for name, unit in units.items():
        _add_states(record.units[name], unit, rank)
    return record


def _layout(unit: Unit) -> UnitRecord:
    layout = unit.layout
    start, _ = layout.summed_range(unit.sequence_parallel)
    tensors = {t.name: t for t in layout.tensors}
    return UnitRecord(
        shapes={name: t.shape for name, t in tensors.items()},
        cuts={name: t.cuts for name, t in tensors.items()},
        summed=frozenset(name for name, at in layout.starts.items() if at >= start),
        spans=tuple(Span(name, tensors[name].cuts, of.start, of.stop) for name, of, _ in unit.spans()),
        sent=_sent(unit),
    )


def _sent(unit: Unit) -> dict[str, list[tuple[int, int]]]:
    """Return the ranges of each flat tensor whose gradients leave in lots."""
    found: dict[str, list[tuple[int, int]]] = {}
    if isinstance(unit, OffloadedUnit) and isinstance(unit.gradients, OffloadedGradients):
        for name, of, here in unit.spans():
            for part in unit.sums.split.within(here.start, here.stop):
                if part.on_host:
                    start = of.start + part.start - here.start
                    found.setdefault(name, []).append((start, start + part.stop - part.start))
    return found


def _parameters(rank: Rank) -> Iterator[Piece]:
    """Yield this rank's pieces of all parameters as passes see them, and its buffers."""
    gather, wide = rank.plan.precision.gather, torch.float64
    for unit in rank.plan.trained_units:
        yield from pieces_of(unit, unit.owned.to(gather).to(wide).cpu())
    for piece in rank.interpreter.states.changes.pieces():
        yield replace(piece, values=piece.values.to(wide).cpu())
    for name, buffer in rank.plan.buffers.items():
        size = tuple(buffer.shape)
        yield Piece(name, size, size, (), 0, buffer.to(wide).cpu().clone())


def _add_states(record: UnitRecord, unit: Unit, rank: Rank) -> None:
    """Add the states of each span, and the distances between neighbouring values of their types."""
    optimizer, wide = rank.interpreter.states.optimizer, torch.float64
    owned = unit.owned
    for _, _, here in unit.spans():
        states = {PARAMETER: owned[here].to(wide).cpu()}
        spacings = {PARAMETER: spacing(owned[here]).cpu()}
        for key, memory, scale in optimizer.moments_at(unit, here):
            stored = torch.cat([part.cpu() for part in memory])
            factor = 1.0 if scale is None else scale.to(wide).cpu()
            states[key] = stored.to(wide) * factor
            spacings[key] = spacing(stored) * factor
        record.states.append(states)
        record.spacings.append(spacings)


def spacing(values: torch.Tensor) -> torch.Tensor:
    """Return the distance from each value to the next larger one of its type, in fp64."""
    info = torch.finfo(values.dtype)
    size = values.to(torch.float64).abs().clamp(min=info.smallest_normal)
    return torch.exp2(torch.floor(torch.log2(size))) * info.eps
