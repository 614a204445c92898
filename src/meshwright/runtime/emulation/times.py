"""What an emulated run is told of time, as plain numbers: the planner's prices, which the runtime does not know itself.

Seconds are those of the plan's own devices. Which kinds of actions run beside compute the Program says.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from meshwright.schedule.action import Kind


@dataclass(frozen=True, slots=True)
class PassTime:
    """One pass of a stage: its compute, and what its collectives add to that, by the axes of their groups."""

    compute_s: float
    exchanges: tuple[tuple[tuple[str, ...], float], ...] = ()

    @property
    def total_s(self) -> float:
        """The whole pass."""
        return self.compute_s + sum(seconds for _, seconds in self.exchanges)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelledTimes:
    """Every duration of a step, and how compute and what runs beside it hold each other up.

    passes
        by stage and pass.
    exchanges
        by stage and kind as in ``Program.collectives``: one number for each of its collectives.
    message_s, send_occupancy
        a message between pipeline ranks, and the part of it that keeps the sender's compute waiting.
    sums_s
        a message with the sums of a step that is validated afterwards; it keeps nobody waiting.
    exchange_occupancy
        the part of an exchange of a spread vocabulary that keeps each rank's compute waiting.
    copies
        a copy of each stage's activations to the host, or back.
    optimizer_s
        the optimizer's step of each pipeline rank.
    beside_gather
        (pass, left) → length of a forward pass that begins while so much of its own gather is left.
    beside_exchange
        (pass, left) → length of a pass beside which exchanges of units run for so much longer.
    reduction_slowdown
        (reduction, pass, blocks) → what a reduction beside it adds to the last backward pass of so many blocks.
    """

    passes: Mapping[tuple[int, Kind], PassTime]
    exchanges: Mapping[tuple[int | None, Kind], tuple[float, ...]]
    message_s: float
    send_occupancy: float
    sums_s: float
    exchange_occupancy: float
    copies: tuple[float, ...]
    optimizer_s: tuple[float, ...]
    beside_gather: Callable[[float, float], float]
    beside_exchange: Callable[[float, float], float]
    reduction_slowdown: Callable[[float, float, int], float]
