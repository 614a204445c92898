"""Durations for an emulated run, as plain numbers: the planner's prices, which the runtime cannot compute itself.

Seconds are those of the plan's own devices. The Program says which kinds of actions overlap compute.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from meshwright.schedules.action import Action, Kind


@dataclass(frozen=True, slots=True)
class PassTime:
    """One pass of a stage: its compute, and the seconds that its collectives add, by the axes of their groups."""

    compute_s: float
    exchanges: tuple[tuple[tuple[str, ...], float], ...] = ()

    @property
    def total_s(self) -> float:
        """Seconds of the whole pass."""
        return self.compute_s + sum(seconds for _, seconds in self.exchanges)


@dataclass(frozen=True, slots=True)
class ExchangeTime:
    """One exchange of a fragment between islands, on one pipeline rank.

    The codec computes when it begins, the update when it ends; the exchange runs between them.
    """

    exchange_s: float
    codec_s: float
    update_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelledTimes:
    """Every duration of a step, and how compute and overlapped communication slow each other down.

    passes
        by stage and pass.
    exchanges
        by stage and kind as in ``Program.collectives``: one number for each of its collectives.
    message_s, send_occupancy
        a message between pipeline ranks, and the fraction of it that blocks the sender's compute.
    messages
        those of them that take other times, by kind and stage.
    sums_s
        a message with the sums of a step that is validated afterwards; it blocks nobody.
    exchange_occupancy
        the fraction of an exchange of a spread vocabulary that blocks each rank's compute.
    copies
        a copy of each stage's activations to the host, or back.
    optimizer_s
        the optimizer's step of each pipeline rank.
    perturbation_s
        a pass of each pipeline rank that perturbs its parameters; 0 with backward passes.
    codec_s
        what each pipeline rank encodes and decodes in a step, before the optimizer's.
    between_islands
        by entry and fragment: an exchange behind a step, of each pipeline rank.
    overlap_slowdown
        the part of an overlapped exchange's time by which compute gets longer (``play/overlap.py``).
    """

    passes: Mapping[tuple[int, Kind], PassTime]
    exchanges: Mapping[tuple[int | None, Kind], tuple[float, ...]]
    message_s: float
    send_occupancy: float
    sums_s: float
    exchange_occupancy: float
    copies: tuple[float, ...]
    optimizer_s: tuple[float, ...]
    perturbation_s: tuple[float, ...]
    codec_s: tuple[float, ...]
    overlap_slowdown: float
    messages: Mapping[tuple[Kind, int | None], float] = field(default_factory=dict)
    between_islands: Mapping[tuple[int, int], tuple[ExchangeTime, ...]] = field(default_factory=dict)

    def message_seconds(self, action: Action) -> float:
        """Return the seconds of a message."""
        return self.messages.get((action.kind, action.stage), self.message_s)
