"""The simulator's durations as a plain table, the input of an emulated run.

Everything is priced by the functions that the simulator calls; nothing is priced here.
"""

from collections.abc import Iterable

from meshwright.cost.operators.pass_prices import CATEGORY, Parts, Prices, message_seconds
from meshwright.cost.operators.program_passes import (
    message_times,
    pass_parts,
    rank_perturbation_seconds,
    rank_step_seconds,
    slowest_message_seconds,
)
from meshwright.cost.pipeline_time.offload_copies import copy_seconds
from meshwright.cost.synchronisation.exchanges_in_steps import step_codec_seconds
from meshwright.cost.synchronisation.exchanges_of_islands import ProgramExchanges
from meshwright.program.lowering.step_collectives import NORM_BYTES
from meshwright.program.pass_items import Body, Collective, Overlap
from meshwright.program.program import Program
from meshwright.runtime.emulation.modelled_durations import ExchangeTime, ModelledTimes, PassTime
from meshwright.schedules.action import Kind
from meshwright.simulate.simulator import exchange_occupancy, message_occupancy


def modelled_times(program: Program, prices: Prices) -> ModelledTimes:
    """Return every duration of a Program's step and of its exchanges between islands."""
    forms = prices.local.forms
    return ModelledTimes(
        passes={key: _pass_time(key, parts, program) for key, parts in pass_parts(program, prices).items()},
        exchanges={
            key: tuple(float(prices.collective(item)) for item in items)
            for key, items in program.collectives.items()
        },
        message_s=slowest_message_seconds(program, prices),
        messages=message_times(program, prices) if len(program.parts) > 1 else {},
        send_occupancy=message_occupancy(program, forms),
        sums_s=float(message_seconds(prices.mesh, forms, NORM_BYTES)),
        exchange_occupancy=exchange_occupancy(program, forms),
        copies=tuple(
            float(copy_seconds(copied, forms)) if copied else 0.0 for copied in program.offloaded_bytes
        ),
        optimizer_s=tuple(rank_step_seconds(program, prices, rank) for rank in range(program.pipeline_ranks)),
        perturbation_s=tuple(
            rank_perturbation_seconds(program, prices, rank) if program.stack.optimizer.forward_only else 0.0
            for rank in range(program.pipeline_ranks)
        ),
        codec_s=step_codec_seconds(program, prices),
        overlap_slowdown=forms.constants["overlap_slowdown"],
        between_islands=_between_islands(ProgramExchanges(program, prices)),
    )


def _between_islands(exchanges: ProgramExchanges) -> dict[tuple[int, int], tuple[ExchangeTime, ...]]:
    """Return the times of each fragment on each pipeline rank."""
    return {
        (entry, fragment): tuple(ExchangeTime(*times) for times in exchanges.rank_times(entry, fragment))
        for entry, fragment in exchanges.messages
    }


def _pass_time(key: tuple[int, Kind], seconds: Parts, program: Program) -> PassTime:
    """Return a pass's time, its exchanges merged into one for each category of groups."""
    axes = {CATEGORY[item.axes[-1]]: item.axes for item in _collectives(program.bodies[key], program)}
    parts = {name: float(value) for name, value in seconds.items()}
    exchanges = tuple((axes[name], parts.pop(name)) for name in sorted(axes) if parts.get(name))
    return PassTime(sum(parts.values()), exchanges)


def _collectives(body: Body, program: Program) -> Iterable[Collective]:
    for segment in body:
        yield from segment.overlapped
        if segment.block is not None:
            for item in program.block_items[segment.block, segment.kind]:
                if isinstance(item, Collective):
                    yield item
                elif isinstance(item, Overlap):
                    yield from item.overlapped
