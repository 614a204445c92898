"""Rows of a Report on what sharding and replication exchange in every step: gradients, and gathered parameters.

An exchange is that of all of a rank's gradients or parameters once; with several in a step, each is one. The exposed
seconds of a step's part, such as ``dp``, are divided among the rows of that part by the seconds of their collectives:
overlap does not tell them apart.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from meshwright.cost.operators.pass_prices import CATEGORY, EXCHANGED, Prices
from meshwright.cost.synchronisation.codec_times import (
    exchange_codec_seconds,
    gather_codec_seconds,
    scatter_codec_seconds,
)
from meshwright.cost.synchronisation.exchange_rows import ExchangeRow, sent_bytes
from meshwright.program.pass_items import Collective, Segment, exchanges_of
from meshwright.program.program import Program
from meshwright.program.rank_units.rank_units import RankUnits
from meshwright.program.synchronisation.encoded_program import micro_batches_reduced_together
from meshwright.program.synchronisation.exact_entries import entries_by_axis
from meshwright.program.synchronisation.unit_legs import unit_shard, unit_shards
from meshwright.schedules.action import PASS_KINDS, Action

STATES: Mapping[bool, str] = {True: "parameter", False: "gradient"}
DATA = ("dp_shard", "dp_replicate", "edp_shard", "edp_replicate")
OF_EXPERTS = {"edp_shard": "dp_shard", "edp_replicate": "dp_replicate"}


@dataclass
class Exchanged:
    """Exchanges of a state over an axis in a step of one pipeline rank; ``part`` is that of the step's breakdown."""

    part: str
    seconds: float = 0.0
    sent: float = 0.0
    size: float = 0.0


def step_rows(program: Program, prices: Prices, parts: Mapping[str, float]) -> Iterator[ExchangeRow]:
    """Yield the rows of a step, those of the pipeline rank that sends most; ``parts`` are the step's breakdown."""
    ranks = [_of_rank(program, prices, rank) for rank in range(program.pipeline_ranks)]
    found = max(ranks, key=lambda one: sum(of.sent for of in one.values()), default={})
    sums = float(prices.collectives(program.collectives.get((None, "NORM"), ())))
    for (state, over), of in found.items():
        number = _repetitions(program, state)
        whole = sum(other.seconds for other in found.values() if other.part == of.part)
        exposed = parts.get(of.part, 0.0) - (sums if of.part == CATEGORY["world"] else 0.0)
        exposed = max(0.0, min(exposed, whole) if of.part == EXCHANGED else exposed)
        yield ExchangeRow(
            state=state,
            over=over,
            every=1,
            exchanges_per_step=float(number),
            encoded_bytes=of.size / number,
            sent_bytes_per_step=of.sent,
            largest_exchange_bytes=of.size / number,
            exchange_s=of.seconds / number,
            window_s=0.0,
            exposed_s_per_step=exposed * of.seconds / whole if whole else 0.0,
        )


def _of_rank(program: Program, prices: Prices, rank: int) -> dict[tuple[str, str], Exchanged]:
    found: dict[tuple[str, str], Exchanged] = {}
    for action in program.lists[rank]:
        if action.stage is None:
            continue
        if action.kind in ("GATHER", "REDUCE"):
            items: Iterable[Collective] = program.collectives.get((action.stage, action.kind), ())
        elif action.kind in PASS_KINDS:
            body = program.bodies.get((action.stage, action.kind), ())
            items = [one for part in body for _ in range(part.count) for one in _of_segment(program, part)]
        else:
            continue
        sums_again = False
        for item in items:
            _add(found, program, prices, item, gathers=action.kind == "GATHER", again=sums_again)
            sums_again = item.entry is not None and item.kind == "all-to-all"
    return found


def _of_segment(program: Program, segment: Segment) -> Iterator[Collective]:
    """Yield the state exchanges of a segment, and the encoded exchanges of its block."""
    yield from segment.overlapped
    if segment.block is not None:
        for item in program.block_items[segment.block, segment.kind]:
            yield from (one for one in exchanges_of(item) if one.entry is not None)


def _add(
    found: dict[tuple[str, str], Exchanged],
    program: Program,
    prices: Prices,
    item: Collective,
    *,
    gathers: bool,
    again: bool,
) -> None:
    """Add a collective to its row; ``again``: it may gather the sums of the one before, which is one exchange."""
    axes = [axis for axis in item.axes if program.group_size((axis,), item.part) > 1]
    if item.entry is None and not any(axis in DATA for axis in axes):
        return
    gathers = gathers or (item.kind == "all-gather" and item.entry is None)
    state = STATES[gathers] if item.entry is None else program.synchronise[item.entry].state
    over = "+".join(dict.fromkeys(OF_EXPERTS.get(axis, axis) for axis in axes))
    of = found.setdefault((state, over), Exchanged(CATEGORY[item.axes[-1]]))
    of.seconds += float(prices.collective(item))
    ranks = program.group_size(item.axes, item.part)
    of.sent += sent_bytes([item], ranks)
    if not (again and item.kind == "all-gather" and state == "gradient"):
        of.size += float(item.logical_bytes) / (ranks if item.kind == "all-gather" else 1)


def _repetitions(program: Program, state: str) -> int:
    """Return the exchanges of everything in a step."""
    modes = [part.mode for part in program.parts]
    if state == "expert_token":
        return program.micro_batches
    if state == "gradient":
        return program.micro_batches // micro_batches_reduced_together(program)
    if any(mode.gather == "per-layer" for mode in modes):
        return 2 * program.micro_batches
    if any(mode.gather == "per-micro-batch" for mode in modes):
        return program.micro_batches
    return max(1, sum(action == Action("GATHER", program.stages[0].index) for action in program.lists[0]))


def step_codec_seconds(program: Program, prices: Prices) -> float:
    """Return the seconds in which a rank encodes and decodes inside a step, on the rank with most."""
    return max(_codec_seconds(program, prices, rank) for rank in range(program.pipeline_ranks))


def _codec_seconds(program: Program, prices: Prices, pipeline_rank: int) -> float:
    rank, forms, total = program.parts.members(pipeline_rank)[0], prices.local.forms, 0.0
    units = [unit for unit in RankUnits(program, rank).distinct() if unit.trained]
    for state in ("gradient", "parameter"):
        repeats = _repetitions(program, state)
        for axis, entry in entries_by_axis(program.synchronise, program.loose, state).items():
            said = program.synchronise[entry].compress
            for unit in units:
                if said is None or axis not in unit.layout.mesh.axes:
                    continue
                ranks = program.group_size((axis,), unit.part)
                if axis not in unit.layout.mesh.shard or unit.layout.parts == 1:
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
