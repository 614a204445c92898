"""Figures of a report on a pool whose phases take turns: its cycle, and a mean request's way through it."""

from math import isfinite

from meshwright.cost.serving.pools_state import PhaseTurns
from meshwright.cost.serving.request_means import RequestMeans
from meshwright.cost.serving.steady_state import SteadyState


def turn_json(turns: PhaseTurns) -> dict[str, float | None]:
    """Return the cycle of a replica: its sequences, waves and seconds, without levels of measured runs."""
    turn = turns.turn
    found = {
        "sequences": turn.sequences,
        "waves": turn.waves,
        "buffer_sequences": turns.cycle.buffer_sequences,
        "cycle_s": turn.cycle_s,
        "prefill_s": turn.prefill_s,
        "change_s": turn.change_s,
        "fetch_s": turn.fetch_s,
        "decode_s": turn.waves_s,
        "back_s": turn.back_s,
    }
    numbers = {name: float(value) for name, value in found.items()}
    return {name: value if isfinite(value) else None for name, value in numbers.items()}


def turn_breakdown(
    turns: PhaseTurns, steady: SteadyState, means: RequestMeans, prompt_s: float
) -> dict[str, float]:
    """Return the parts of a mean request's latency, each with the level of the mean that it belongs to.

    ``handover``: the change to the layout of decode; ``buffered``: waiting after the first token, in host memory.
    """
    first, further = means.ttft_s / float(steady.ttft_s), means.tpot_s / float(steady.tpot_s)
    steps, turn = means.output_tokens - 1, turns.turn
    own = float(turns.cycle.prompt_own_s) - prompt_s
    change = float(turn.change_s)
    iterations = steps * float(turns.cycle.decode.decode_s(turn.at_once))
    buffered = steps * float(steady.tpot_s) - change - iterations
    parts = {"prefill": first * own, "engine": first * prompt_s}
    return {
        **parts,
        "waiting": means.ttft_s - sum(parts.values()),
        "handover": further * change,
        "buffered": further * buffered,
        "decode": further * iterations,
    }
