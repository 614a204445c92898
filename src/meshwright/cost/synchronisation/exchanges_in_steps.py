"""Rows of a Report on what sharding and replication exchange in every step: gradients, and gathered parameters.

An exchange is that of all of a rank's gradients or parameters once; with several in a step, each is one.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from meshwright.cost.operators.pass_prices import Prices
from meshwright.cost.synchronisation.codec_traffic import codec_bytes_moved
from meshwright.cost.synchronisation.exchange_rows import ExchangeRow, sent_bytes
from meshwright.program.pass_items import Collective, Segment, exchanges_of
from meshwright.program.program import Program
from meshwright.program.rank_units.rank_units import RankUnits
from meshwright.program.synchronisation.exact_entries import entries_by_axis
from meshwright.schedules.action import PASS_KINDS

STATES: Mapping[bool, str] = {True: "parameter", False: "gradient"}
DATA = ("dp_shard", "dp_replicate", "edp_shard", "edp_replicate")
OF_EXPERTS = {"edp_shard": "dp_shard", "edp_replicate": "dp_replicate"}


@dataclass
class Exchanged:
    """Exchanges of a state over an axis by a pipeline rank in a step."""

    seconds: float = 0.0
    sent: float = 0.0
    size: float = 0.0
    collectives: int = 0


def step_rows(program: Program, prices: Prices, exposed_s: float) -> Iterator[ExchangeRow]:
    """Yield the rows of a step; ``exposed_s`` is divided among them by their seconds."""
    ranks = [_of_rank(program, prices, rank) for rank in range(program.pipeline_ranks)]
    found = max(ranks, key=lambda one: sum(of.sent for of in one.values()), default={})
    whole = sum(of.seconds for of in found.values())
    for (state, over), of in found.items():
        number = max(1, round(of.collectives / max(1, _once(program, state, over, found))))
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
            exposed_s_per_step=exposed_s * of.seconds / whole if whole else 0.0,
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
        for item in items:
            _add(found, program, prices, item, gathers=action.kind == "GATHER")
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
) -> None:
    axes = [axis for axis in item.axes if program.group_size((axis,), item.part) > 1]
    if item.entry is None and not any(axis in DATA for axis in axes):
        return
    gathers = gathers or (item.kind == "all-gather" and item.entry is None)
    state = STATES[gathers] if item.entry is None else program.synchronise[item.entry].state
    over = "+".join(dict.fromkeys(OF_EXPERTS.get(axis, axis) for axis in axes))
    of = found.setdefault((state, over), Exchanged())
    of.seconds += float(prices.collective(item))
    ranks = program.group_size(item.axes, item.part)
    of.sent += sent_bytes([item], ranks)
    of.size += float(item.logical_bytes) / (ranks if item.kind == "all-gather" else 1)
    of.collectives += 1


def _once(program: Program, state: str, over: str, found: Mapping[tuple[str, str], Exchanged]) -> int:
    """Return the collectives of one exchange of everything: the others are repetitions for each micro-batch."""
    return max(1, found[state, over].collectives // max(1, _repetitions(program, state)))


def _repetitions(program: Program, state: str) -> int:
    """Return the exchanges of everything in a step."""
    modes = [part.mode for part in program.parts]
    if state == "expert_token":
        return program.micro_batches
    if state == "gradient":
        return program.micro_batches if any(mode.reduce == "per-micro-batch" for mode in modes) else 1
    if any(mode.gather == "per-layer" for mode in modes):
        return 2 * program.micro_batches
    return program.micro_batches if any(mode.gather == "per-micro-batch" for mode in modes) else 1


def step_codec_seconds(program: Program, prices: Prices) -> float:
    """Return the seconds in which a rank encodes and decodes inside a step, on the rank with most."""
    return max(_codec_seconds(program, prices, rank) for rank in range(program.pipeline_ranks))


def _codec_seconds(program: Program, prices: Prices, rank: int) -> float:
    units = [unit for unit in RankUnits(program, program.parts.members(rank)[0]).distinct() if unit.trained]
    moved = 0.0
    for state in ("gradient", "parameter"):
        repeats = _repetitions(program, state)
        for axis, entry in entries_by_axis(program.synchronise, program.loose, state).items():
            for unit in units:
                if axis not in unit.layout.mesh.axes:
                    continue
                ranks = program.group_size((axis,), unit.part)
                whole = unit.layout.size if axis in unit.layout.mesh.shard else unit.layout.shard
                moved += repeats * codec_bytes_moved(program.synchronise[entry].compress, whole, ranks)
    return float(prices.local.forms.pass_(moved, "optimizer_efficiency")) if moved else 0.0
