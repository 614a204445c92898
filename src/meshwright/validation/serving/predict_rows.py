"""Predict serving runs of a table from their inputs, all at once for runs of one model, device, engine and formats."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.serving.pools_state import PoolsState, disaggregated_pools_state, serving_state
from meshwright.stack.serving.serving_stack import ServingStack, load_serving_stack
from meshwright.validation.serving.row_pools import (
    AlikeRuns,
    pool_arrays,
    run_load,
    run_problems,
    served_model,
)
from meshwright.validation.serving.serving_row import ServingInputs

EngineOf = Callable[[str], ServingStack]
AMPLE = 1e6
"""Replicas that prefill without a queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTimes:
    """Predicted means of runs without levels: seconds, and output tokens/s of a device. NaN: there is none.

    ``waits`` where requests of a closed loop wait for room; ``reasons`` why runs have no prediction, "": they have one.
    """

    ttft_s: NDArray[np.float64]
    tpot_s: NDArray[np.float64]
    throughput: NDArray[np.float64]
    waits: NDArray[np.bool_]
    reasons: tuple[str, ...]


def predict_rows(runs: Sequence[ServingInputs], engine_of: EngineOf = load_serving_stack) -> RunTimes:
    """Return the predicted means of all runs; ``engine_of`` has the facts of an engine by its name."""
    values = np.full((3, len(runs)), np.nan)
    reasons = ["; ".join(f"{one.field}: {one.rule}" for one in run_problems(run)) for run in runs]
    waits = np.zeros(len(runs), dtype=bool)
    alike: dict[AlikeRuns, list[int]] = {}
    for number, run in enumerate(runs):
        if not reasons[number]:
            alike.setdefault(AlikeRuns.of(run), []).append(number)
    for common, numbers in alike.items():
        chosen = [runs[number] for number in numbers]
        state = _state(common, chosen, engine_of(common.engine))
        steady = state.steady
        output = np.array([run.output_tokens for run in chosen])
        devices = np.array([run.devices for run in chosen])
        values[:, numbers] = steady.ttft_s, steady.tpot_s, steady.requests_per_s * output / devices
        closed = np.array([run.concurrency is not None for run in chosen])
        waits[numbers] = closed & np.isin(steady.limited_by, ("kv_room", "max_sequences"))
        for number, fits in zip(numbers, np.broadcast_to(state.fits, len(chosen)), strict=True):
            reasons[number] = "" if fits else "no sequence has room beside the weights"
    ttft, tpot, throughput = np.where([not reason for reason in reasons], values, np.nan)
    return RunTimes(ttft_s=ttft, tpot_s=tpot, throughput=throughput, waits=waits, reasons=tuple(reasons))


def _state(common: AlikeRuns, runs: Sequence[ServingInputs], engine: ServingStack) -> PoolsState:
    """Return the steady state of alike runs."""
    served = replace(served_model(common.model, common.device), engine=engine)
    pools, load = (
        [pool_arrays(common, place, runs, engine) for place in range(len(common.pools))],
        run_load(runs),
    )
    if len(pools) == 1:
        return serving_state(served, pools[0], load)
    prefill, decode = pools
    counted = np.array([run.workers[0].counted for run in runs])
    if not counted.all():
        ample = replace(prefill, replicas=np.where(counted, prefill.replicas, AMPLE))
        state = disaggregated_pools_state(served, ample, decode, load)
        needed = np.ceil(state.steady.requests_per_s * state.pools["prefill"].phases.full_s)
        prefill = replace(prefill, replicas=np.where(counted, prefill.replicas, np.maximum(needed, 1.0)))
    return disaggregated_pools_state(served, prefill, decode, load)
