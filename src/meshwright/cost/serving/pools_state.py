"""The steady state of the pools of a plan: one that serves, or one that prefills and one that decodes.

This is the one place where a replica's iterations, its memory and a load become seconds, tokens per second and what
limits them; ``predict``, ``validate`` and the search all ask here, with arrays of alternatives.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.serving.disaggregated import PoolPair, disaggregated_state
from meshwright.cost.serving.host_cache import buffer_sequences, host_copies
from meshwright.cost.serving.iteration_limits import limiting_resource
from meshwright.cost.serving.kv_capacity import KvCapacity, kv_capacity
from meshwright.cost.serving.kv_transfers import cache_transfer
from meshwright.cost.serving.operators import IterationLoad
from meshwright.cost.serving.phase_layouts import PhaseCycle, Turn, cycle_state
from meshwright.cost.serving.phase_times import PhaseTimes
from meshwright.cost.serving.replica_load import ReplicaLimits, ReplicaLoad
from meshwright.cost.serving.replica_pools import PoolArrays, ServedModel
from meshwright.cost.serving.steady_state import SteadyState, steady_state
from meshwright.plans.serving.serving_plan import Does
from meshwright.program.local_shape import Number


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolState:
    """A pool in its steady state.

    ``iteration_s``: mean seconds of a replica's iteration, or of a prompt where it prefills alone. ``utilisation``:
    requests/s as a share of the most that the pool can do.
    """

    batch: NDArray[Any]
    iteration_s: NDArray[Any]
    utilisation: NDArray[Any]
    capacity: KvCapacity
    phases: PhaseTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTurns:
    """The cycle of a pool with a layout for each phase, whose own state is that of decoding.

    ``prefill``: its replicas in the other phase, with ``prefill_pool`` as their numbers.
    """

    prefill: PoolState
    prefill_pool: PoolArrays
    cycle: PhaseCycle
    turn: Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolsState:
    """All pools of a plan: ``steady.requests_per_s`` of all replicas, ``steady.batch`` of one that decodes.

    ``turns``: of a pool with a layout for each phase.
    """

    steady: SteadyState
    pools: Mapping[Does, PoolState]
    devices: NDArray[Any]
    hand_over_s: Number = 0.0
    turns: PhaseTurns | None = None

    @property
    def fits(self) -> NDArray[np.bool_]:
        """True where every pool has room for the weights and a sequence, in each phase."""
        phases = [*self.pools.values(), *([] if self.turns is None else [self.turns.prefill])]
        return np.logical_and.reduce([phase.capacity.fits for phase in phases])

    @property
    def decoding(self) -> PoolState:
        """The pool that writes the output."""
        return self.pools["decode" if "decode" in self.pools else "serve"]


def serving_state(served: ServedModel, pool: PoolArrays, load: ReplicaLoad) -> PoolsState:
    """Return the steady state of a pool that serves; ``load`` is that of all replicas."""
    of_one = load.of_replica(pool.replicas)
    phases, capacity = pool_phases(served, pool, of_one, mixed=served.engine.mixed_batches)
    steady = steady_state(phases, served.waiting)
    requests = steady.requests_per_s * pool.replicas
    state = _decoding_state(phases, capacity, steady, mixed=True)
    return PoolsState(
        steady=replace(steady, requests_per_s=requests),
        pools={"serve": state},
        devices=np.asarray(pool.devices),
    )


def disaggregated_pools_state(
    served: ServedModel, prefill: PoolArrays, decode: PoolArrays, load: ReplicaLoad
) -> PoolsState:
    """Return the steady state of a pool that prefills and one that decodes."""
    fill, fill_capacity = pool_phases(served, prefill, load, mixed=False)
    write, write_capacity = pool_phases(served, decode, load, mixed=False)
    moved = cache_transfer(
        served.model, served.times, load.input_tokens, decode.formats, prefill.degrees, decode.degrees
    )
    steady = disaggregated_state(
        PoolPair(
            prefill=fill,
            prefill_replicas=prefill.replicas,
            decode=write,
            decode_replicas=decode.replicas,
            hand_over_s=moved.seconds,
            waiting=served.waiting,
            transfers_per_s=moved.most_per_s(prefill.replicas, decode.replicas),
        )
    )
    per_prompt = np.asarray(fill.full_s)
    filling = PoolState(
        batch=steady.requests_per_s * per_prompt / prefill.replicas,
        iteration_s=per_prompt,
        utilisation=np.clip(steady.requests_per_s * per_prompt / prefill.replicas, 0.0, 1.0),
        capacity=fill_capacity,
        phases=fill,
    )
    return PoolsState(
        steady=steady,
        pools={"prefill": filling, "decode": _decoding_state(write, write_capacity, steady, mixed=False)},
        devices=np.asarray(prefill.devices + decode.devices),
        hand_over_s=moved.seconds,
    )


def phased_pool_state(
    served: ServedModel, prefill: PoolArrays, decode: PoolArrays, load: ReplicaLoad
) -> PoolsState:
    """Return the steady state of a pool whose replicas prefill and decode in turns, each phase with its layout.

    Requests of one token never decode, so that the layout of prefill stays.
    """
    if not np.any(np.asarray(load.output_tokens) > 1):
        return serving_state(served, prefill, load)
    of_one = load.of_replica(decode.replicas)
    fill, fill_capacity = pool_phases(served, prefill, of_one, mixed=False)
    write, write_capacity = pool_phases(served, decode, of_one, mixed=False)
    cycle = PhaseCycle(
        prefill=fill,
        decode=write,
        copies=host_copies(served, prefill, decode, of_one),
        buffer_sequences=buffer_sequences(served, decode, of_one),
        prompt_s=served.waiting.prompt_s,
    )
    found = cycle_state(cycle)
    steady, busy = found.steady, np.clip(found.steady.requests_per_s / found.most_per_s, 0.0, 1.0)
    decoding = PoolState(
        batch=np.asarray(steady.batch),
        iteration_s=np.asarray(write.decode_s(steady.batch)),
        utilisation=busy,
        capacity=write_capacity,
        phases=write,
    )
    full = np.asarray(fill.full_s)
    filling = PoolState(
        batch=np.zeros_like(busy), iteration_s=full, utilisation=busy, capacity=fill_capacity, phases=fill
    )
    return PoolsState(
        steady=replace(steady, requests_per_s=steady.requests_per_s * decode.replicas),
        pools={"serve": decoding},
        devices=np.asarray(decode.devices),
        turns=PhaseTurns(prefill=filling, prefill_pool=prefill, cycle=cycle, turn=found.turn),
    )


def turns_limit(served: ServedModel, decode: PoolArrays, turns: PhaseTurns) -> NDArray[Any]:
    """Return the resource that limits the longer phase of a pool with a layout for each."""
    load, degrees, prefill = turns.cycle.decode.load, decode.degrees, turns.prefill_pool
    decoding = limiting_resource(
        decode.cost(served),
        IterationLoad(
            sequences=turns.turn.at_once / (degrees.attention_dp * degrees.pp), context=load.context
        ),
    )
    filling = limiting_resource(
        prefill.cost(served),
        IterationLoad(
            prompt_tokens=prefill.chunk_tokens,
            prompt_positions=load.prompt_positions,
            prompts=prefill.chunk_tokens / load.prompt_tokens,
            prompt_ranks=prefill.degrees.attention_dp,
        ),
    )
    return np.where(turns.turn.prefill_s > turns.turn.waves_s, filling, decoding)


def decode_limit(served: ServedModel, pool: PoolArrays, state: PoolState) -> NDArray[Any]:
    """Return the resource that limits the iterations of a pool: ``compute`` or ``memory_bandwidth``."""
    load, degrees, phases = state.phases.load, pool.degrees, state.phases
    under_way = state.batch / np.maximum(np.asarray(phases.steps), 1.0)
    chunks = np.minimum(under_way * phases.chunks / (degrees.attention_dp * degrees.pp), 1.0)
    alone = np.asarray(phases.steps) == 0
    tokens = load.prompt_tokens / phases.chunks * np.where(alone, 1.0, chunks)
    return limiting_resource(
        pool.cost(served),
        IterationLoad(
            prompt_tokens=tokens,
            prompt_positions=load.prompt_positions,
            prompts=tokens / load.prompt_tokens,
            prompt_ranks=degrees.attention_dp,
            sequences=state.batch / (degrees.attention_dp * degrees.pp),
            context=load.context,
        ),
    )


def pool_phases(
    served: ServedModel, pool: PoolArrays, load: ReplicaLoad, *, mixed: bool
) -> tuple[PhaseTimes, KvCapacity]:
    """Return the seconds of a replica's phases under its load, and its room; ``mixed``: prompts run among sequences."""
    capacity = kv_capacity(served, pool, load)
    limits = ReplicaLimits(
        chunk_tokens=pool.chunk_tokens,
        max_sequences=pool.max_sequences,
        room_sequences=capacity.sequences,
        mixed=mixed,
        align_iterations=float(served.engine.align_iterations) if mixed else 0.0,
    )
    return PhaseTimes(pool.cost(served), load, limits), capacity


def _decoding_state(
    phases: PhaseTimes, capacity: KvCapacity, steady: SteadyState, *, mixed: bool
) -> PoolState:
    """Return the state of a pool whose replicas decode ``steady.batch`` sequences each."""
    alone = np.asarray(phases.steps) == 0
    largest = np.asarray(phases.limits.sequences)
    with np.errstate(divide="ignore", invalid="ignore"):
        at, full = phases.at(steady.batch), phases.at(largest)
        iteration, slowest = (at.tpot_s, full.tpot_s) if mixed else (at.decode_s, full.decode_s)
        of_batch = np.where(largest > 0, steady.batch / iteration / (largest / slowest), np.nan)
    seconds = np.where(alone, phases.full_s, iteration)
    busy = np.where(
        alone, np.nan_to_num(steady.requests_per_s * np.asarray(phases.full_s), nan=1.0), of_batch
    )
    return PoolState(
        batch=np.asarray(steady.batch),
        iteration_s=np.asarray(seconds),
        utilisation=np.clip(busy, 0.0, 1.0),
        capacity=capacity,
        phases=phases,
    )
