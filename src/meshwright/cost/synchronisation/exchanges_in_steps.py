"""Rows of a Report on what sharding and replication exchange in every step: gradients, and gathered parameters.

An exchange is that of all of a rank's gradients or parameters once; with several in a step, each is one. The exposed
seconds of a step's part, such as ``dp``, are divided among the rows of that part by the seconds of their collectives:
overlap does not tell them apart.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from meshwright.cost.operators.pass_prices import CATEGORY, EXCHANGED, Prices
from meshwright.cost.synchronisation.codec_times import (
    exchange_codec_seconds,
    gather_codec_seconds,
    row_seconds,
    scatter_codec_seconds,
)
from meshwright.cost.synchronisation.exchange_rows import ExchangeRow, sent_bytes
from meshwright.plans.synchronisation.synchronisation import Synchronisation
from meshwright.program.local_shape import Mode, Number
from meshwright.program.pass_items import Collective, Segment, exchanges_of
from meshwright.program.program import Program
from meshwright.program.rank_units.rank_units import RankUnits
from meshwright.program.synchronisation.exact_entries import entries_by_axis
from meshwright.program.synchronisation.unit_legs import unit_shard, unit_shards
from meshwright.schedules.action import PASS_KINDS

STATES: Mapping[bool, str] = {True: "parameter", False: "gradient"}
DATA = ("dp_shard", "dp_replicate", "edp_shard", "edp_replicate")
OF_EXPERTS = {"edp_shard": "dp_shard", "edp_replicate": "dp_replicate"}


@dataclass(frozen=True, slots=True)
class ExchangeItem:
    """A collective that a pipeline rank takes part in so many ``times`` in a step.

    ``gathers``: it belongs to a GATHER. ``again``: it gathers the sums of the one before, which is one exchange.
    """

    collective: Collective
    times: int
    gathers: bool = False
    again: bool = False


@dataclass(frozen=True)
class StepExchanges:
    """Exchanges of a step, from a Program or from closed forms.

    ``ranks`` are the items of each pipeline rank, ``repetitions`` how often everything of a state is exchanged, None
    where stages are unlike often, and ``sums_s`` the seconds of the sums for the gradient norm.
    """

    ranks: Sequence[Sequence[ExchangeItem]]
    group_size: Callable[[tuple[str, ...], int], int]
    seconds: Callable[[Collective], Number]
    repetitions: Callable[[str], int | None]
    sums_s: float
    synchronise: Sequence[Synchronisation] = ()

    def state(self, item: ExchangeItem) -> str:
        """Return the state that an item exchanges."""
        entry = item.collective.entry
        if entry is not None:
            return self.synchronise[entry].state
        return STATES[item.gathers or item.collective.kind == "all-gather"]


@dataclass
class Exchanged:
    """Exchanges of a state over an axis in a step of one pipeline rank; ``part`` is that of the step's breakdown."""

    part: str
    seconds: float = 0.0
    sent: float = 0.0
    size: float = 0.0
    once: float = 0.0


def step_rows(of_step: StepExchanges, parts: Mapping[str, float]) -> Iterator[ExchangeRow]:
    """Yield the rows of a step, those of the pipeline rank that sends most; ``parts`` are the step's breakdown."""
    ranks = [_of_rank(of_step, items) for items in of_step.ranks]
    found = max(ranks, key=lambda one: sum(of.sent for of in one.values()), default={})
    for (state, over), of in found.items():
        number = of_step.repetitions(state) or of.size / of.once
        whole = sum(other.seconds for other in found.values() if other.part == of.part)
        exposed = parts.get(of.part, 0.0) - (of_step.sums_s if of.part == CATEGORY["world"] else 0.0)
        exposed = max(0.0, min(exposed, whole) if of.part == EXCHANGED else exposed)
        yield ExchangeRow(
            state=state,
            over=over,
            every=1,
            exchanges_per_step=float(number),
            encoded_bytes=round(of.size / number),
            sent_bytes_per_step=of.sent,
            largest_exchange_bytes=round(of.size / number),
            exchange_s=of.seconds / number,
            window_s=0.0,
            exposed_s_per_step=exposed * of.seconds / whole if whole else 0.0,
        )


def _of_rank(of_step: StepExchanges, items: Iterable[ExchangeItem]) -> dict[tuple[str, str], Exchanged]:
    found: dict[tuple[str, str], Exchanged] = {}
    for one in items:
        item = one.collective
        axes = [axis for axis in item.axes if of_step.group_size((axis,), item.part) > 1]
        if item.entry is None and not any(axis in DATA for axis in axes):
            continue
        state, ranks = of_step.state(one), of_step.group_size(item.axes, item.part)
        over = "+".join(dict.fromkeys(OF_EXPERTS.get(axis, axis) for axis in axes))
        of = found.setdefault((state, over), Exchanged(CATEGORY[item.axes[-1]]))
        size = one_number(item.logical_bytes)
        of.seconds += one.times * one_number(of_step.seconds(item))
        of.sent += one.times * sent_bytes(item.kind, size, ranks)
        if not (one.again and item.kind == "all-gather" and state == "gradient"):
            own = size / (ranks if item.kind == "all-gather" else 1)
            of.size += one.times * own
            of.once += own
    return found


def one_number(value: object) -> float:
    """Return a number, or that of the only plan of an array."""
    return float(np.ravel(np.asarray(value))[0])


def repetitions(modes: Iterable[Mode], micro_batches: int, state: str) -> int:
    """Return the exchanges of everything in a step that is not exchanged unit by unit."""
    modes = tuple(modes)
    if state == "expert_token":
        return micro_batches
    if state == "gradient":
        return micro_batches if any(mode.reduce == "per-micro-batch" for mode in modes) else 1
    if any(mode.gather == "per-layer" for mode in modes):
        return 2 * micro_batches
    return micro_batches if any(mode.gather == "per-micro-batch" for mode in modes) else 1


def program_exchanges(program: Program, prices: Prices) -> StepExchanges:
    """Return the exchanges of a Program."""
    return StepExchanges(
        [list(_program_items(program, rank)) for rank in range(program.pipeline_ranks)],
        program.group_size,
        prices.collective,
        _repetitions(program),
        one_number(prices.collectives(program.collectives.get((None, "NORM"), ()))),
        program.synchronise,
    )


def _repetitions(program: Program) -> Callable[[str], int | None]:
    def of_state(state: str) -> int | None:
        if program.parts.by_unit and state in STATES.values():
            return None
        return repetitions((part.mode for part in program.parts), program.micro_batches, state)

    return of_state


def _program_items(program: Program, rank: int) -> Iterator[ExchangeItem]:
    counts = Counter((action.stage, action.kind) for action in program.lists[rank])
    for (stage, kind), times in counts.items():
        if stage is None:
            continue
        if kind in ("GATHER", "REDUCE"):
            yield from _items(program.collectives.get((stage, kind), ()), times, gathers=kind == "GATHER")
        elif kind in PASS_KINDS:
            for segment in program.bodies.get((stage, kind), ()):
                yield from _items(_of_segment(program, segment), times * segment.count)


def _items(collectives: Iterable[Collective], times: int, *, gathers: bool = False) -> Iterator[ExchangeItem]:
    before: Collective | None = None
    for item in collectives:
        scattered = before is not None and before.kind == "all-to-all" and before.entry is not None
        same = before is not None and (before.entry, before.axes, before.part) == (
            item.entry,
            item.axes,
            item.part,
        )
        yield ExchangeItem(item, times, gathers, scattered and same)
        before = item


def _of_segment(program: Program, segment: Segment) -> Iterator[Collective]:
    """Yield the state exchanges of a segment, and the encoded exchanges of its block."""
    yield from segment.overlapped
    if segment.block is not None:
        for item in program.block_items[segment.block, segment.kind]:
            yield from (one for one in exchanges_of(item) if one.entry is not None)


def step_codec_seconds(program: Program, prices: Prices) -> tuple[float, ...]:
    """Return the seconds in which each pipeline rank encodes and decodes inside a step."""
    if not program.synchronise:
        return (0.0,) * program.pipeline_ranks
    return tuple(_codec_seconds(program, prices, rank) for rank in range(program.pipeline_ranks))


def _units(program: Program, pipeline_rank: int, state: str) -> float:
    """Return the mean number of exchanges of a pipeline rank's stages that are exchanged unit by unit."""
    kind = "GATHER" if state == "parameter" else "REDUCE"
    count = sum(action.kind == kind for action in program.lists[pipeline_rank])
    return count / len(program.stages_of(pipeline_rank))


def _codec_seconds(program: Program, prices: Prices, pipeline_rank: int) -> float:
    rank, forms, total = program.parts.members(pipeline_rank)[0], prices.local.forms, 0.0
    units = [unit for unit in RankUnits(program, rank).distinct() if unit.trained]
    for state in ("gradient", "parameter"):
        repeats = _repetitions(program)(state) or _units(program, pipeline_rank, state)
        for axis, entry in entries_by_axis(program.synchronise, program.loose, state).items():
            rule, said = program.synchronise[entry], program.synchronise[entry].compress
            for unit in units:
                if axis not in unit.layout.mesh.axes:
                    continue
                ranks = program.group_size((axis,), unit.part)
                if rule.takes_rows:
                    own = unit_shard(program, rank, unit)
                    seconds = row_seconds(rule, own, ranks, forms) if ranks > 1 else 0.0
                elif said is None:
                    continue
                elif axis not in unit.layout.mesh.shard or unit.layout.parts == 1:
                    own = unit_shard(program, rank, unit)
                    seconds = exchange_codec_seconds(said, own, ranks, forms) if ranks > 1 else 0.0
                else:
                    every = [stretch for shard in unit_shards(unit) for stretch in shard]
                    if state == "gradient":
                        seconds = scatter_codec_seconds(said, every, forms)
                    else:
                        seconds = gather_codec_seconds(said, every, unit.layout.parts, forms)
                total += repeats * seconds
    return total
