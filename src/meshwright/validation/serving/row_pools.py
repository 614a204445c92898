"""Make the pools of a measured serving run, as the cost model takes them, from its inputs.

What a table leaves out is as the engine does by default (``stack/serving/files``). TensorRT-LLM's checkpoints in fp8 or
fp4 have an fp8 cache, except gpt-oss (``kv_cache_quant_algo`` of their ``hf_quant_config.json``); other engines keep
the cache in 16 bit unless asked. gpt-oss runs in the format that it was released in under any name of a format.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf, nan

import numpy as np

from meshwright.cluster.load import load_cluster
from meshwright.cost.serving.hardware_times import serving_times_for
from meshwright.cost.serving.replica_load import ReplicaLoad
from meshwright.cost.serving.replica_pools import PoolArrays, ServedModel
from meshwright.errors import Problem
from meshwright.model.architecture import Architecture
from meshwright.model.load import load_model
from meshwright.plans.serving.number_formats import NumberFormats
from meshwright.plans.serving.rules.replica_degrees import layout_problems
from meshwright.plans.serving.rules.request_limits import request_position_problems
from meshwright.plans.serving.rules.serving_rule_input import PlacedLayout
from meshwright.program.serving.serving_degrees import ReplicaDegrees
from meshwright.program.serving.storage_formats import StorageFormats
from meshwright.stack.serving.serving_stack import GENERIC_ENGINE, ServingStack, load_serving_stack
from meshwright.validation.serving.serving_row import Does, ServingInputs, Workers

DEVICES = 72
"""Devices of a run's cluster: a multiple of usual nodes and of the largest domain, so that neither is cut."""
FP8_CACHE = ("fp8", "fp8-block", "fp4")
"""Formats of weights whose TensorRT-LLM checkpoints have an fp8 cache."""
KEPT = ("mxfp4",)
"""Formats of released weights that engines run as they are."""


@dataclass(frozen=True, slots=True)
class AlikeRuns:
    """Common inputs of runs that are predicted at once."""

    model: str
    device: str
    engine: str
    formats: NumberFormats
    pools: tuple[Does, ...]

    @classmethod
    def of(cls, inputs: ServingInputs) -> "AlikeRuns":
        """Return what a run has in common with others."""
        return cls(
            inputs.model,
            inputs.device,
            inputs.engine,
            run_formats(inputs),
            tuple(one.does for one in inputs.workers),
        )


def run_formats(inputs: ServingInputs) -> NumberFormats:
    """Return the formats of a run's weights and cache."""
    released = _architecture(inputs.model).released_weights
    weights = None if released in KEPT else inputs.weights
    kv = inputs.kv
    if kv is None and inputs.engine == "tensorrt-llm" and released not in KEPT:
        kv = "fp8" if (weights or released) in FP8_CACHE else None
    return NumberFormats(weights=weights, kv=kv)


@cache
def served_model(model: str, device: str) -> ServedModel:
    """Return a model on devices of one kind, in their usual nodes, under the generic engine."""
    pool = load_cluster(f"{device} x {DEVICES}").pool
    return ServedModel(
        model=load_model(model),
        times=serving_times_for(pool),
        memory_bytes=pool.device.memory_bytes,
        engine=load_serving_stack(GENERIC_ENGINE),
    )


def run_problems(inputs: ServingInputs) -> Iterator[Problem]:
    """Yield why a run has no prediction."""
    arch = _architecture(inputs.model)
    if arch.encoder is not None:
        rule = "serving a model with an encoder is not predicted yet"
        yield Problem("model", inputs.model, rule, "a model with a decoder alone")
    longest = request_position_problems(arch, inputs.input_tokens, inputs.output_tokens, "isl")
    yield from (one for one in longest if one.severity == "error")
    for workers in inputs.workers:
        placed = PlacedLayout(workers.does, workers.does, workers.layout)
        yield from (one for one in layout_problems(arch, placed) if not _holds_copies(one, workers))


def _holds_copies(problem: Problem, workers: Workers) -> bool:
    """Return whether a problem is that ep does not divide the experts, which copies of experts on ranks solve."""
    return problem.field.endswith(".ep") and workers.layout.attention_dp > 1


def pool_arrays(
    common: AlikeRuns, pool: int, runs: Sequence[ServingInputs], engine: ServingStack
) -> PoolArrays:
    """Return the workers of one pool of alike runs, with one entry for each run."""
    workers = [run.workers[pool] for run in runs]

    def degree(name: str) -> np.ndarray:
        return np.array([getattr(one.layout, name) for one in workers], dtype=np.float64)

    attention_dp = degree("attention_dp")
    return PoolArrays(
        degrees=ReplicaDegrees(
            attention_dp=attention_dp,
            tp=degree("tp"),
            pp=degree("pp"),
            cp=degree("cp"),
            ep=degree("ep"),
            etp=degree("etp"),
        ),
        formats=StorageFormats.of_pool(common.formats, _architecture(common.model)),
        chunk_tokens=float(engine.chunk_tokens),
        max_sequences=_max_sequences(workers, engine.max_sequences),
        kv_fraction=engine.kv_fraction,
        replicas=np.array([one.replicas for one in workers], dtype=np.float64),
    )


def _max_sequences(workers: Sequence[Workers], default: int) -> np.ndarray:
    """Return the most sequences of a replica; a pool that prefills holds none."""
    return np.array(
        [inf if one.does != "serve" else default * one.layout.attention_dp for one in workers],
        dtype=np.float64,
    )


def run_load(runs: Sequence[ServingInputs]) -> ReplicaLoad:
    """Return the load of runs on all of their replicas."""
    clients = [nan if run.concurrency is None else run.concurrency for run in runs]
    rates = [inf if run.rate_per_s is None else run.rate_per_s for run in runs]
    return ReplicaLoad(
        input_tokens=np.array([run.input_tokens for run in runs], dtype=np.float64),
        output_tokens=np.array([run.output_tokens for run in runs], dtype=np.float64),
        concurrency=np.array(clients, dtype=np.float64),
        rate_per_s=np.where(np.isfinite(clients), nan, rates),
    )


@cache
def _architecture(model: str) -> Architecture:
    return load_model(model).architecture
