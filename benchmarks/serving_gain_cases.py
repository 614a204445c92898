"""Predict the gains of published serving systems, each in its paper's setting.

One function for each system; all of them return numbers, which ``serving_gains.py`` writes into a page. No constant is
fitted to what the papers publish.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from meshwright.cluster.load import load_cluster
from meshwright.cost.serving.all_reduce_forms import ALL_REDUCE_FORMS
from meshwright.cost.serving.hardware_times import ServingTimes, serving_times_for
from meshwright.cost.serving.iteration import Overheads, ReplicaCost, iteration_seconds
from meshwright.cost.serving.operators import IterationLoad
from meshwright.cost.serving.overlap_forms import tile_hidden_seconds
from meshwright.model.graph import ModelGraph
from meshwright.model.load import load_config, load_model
from meshwright.program.serving.serving_degrees import ReplicaDegrees
from meshwright.program.serving.storage_formats import StorageFormats
from meshwright.stack.serving.serving_stack import load_serving_stack

CLUSTERS = Path(__file__).with_name("serving-gains")
H100_NODE, A100_NODE = "h100-sxm-80gb x 8", "a100-sxm-80gb x 8"
PERLMUTTER, SIXTEEN_DIES = str(CLUSTERS / "perlmutter.yaml"), str(CLUSTERS / "sixteen-dies.yaml")
HALF = 2
FP16_BYTES = 2


@cache
def times_of(cluster: str) -> ServingTimes:
    """Return the forms of a cluster's devices and network."""
    return serving_times_for(load_cluster(cluster).pool)


def replica(model: ModelGraph, cluster: str, tp: int, **forms: str) -> ReplicaCost:
    """Return a replica of tp ranks, which cut experts too, in 16 bit."""
    experts = tp if model.architecture.moe is not None else 1
    degrees = ReplicaDegrees(tp=float(tp), etp=float(experts))
    return ReplicaCost(
        model=model, times=times_of(cluster), degrees=degrees, formats=StorageFormats(), **forms
    )


def prompts(count: float, tokens: float, positions: float | None = None) -> IterationLoad:
    """Return an iteration of whole prompts; ``positions`` that a token attends to in the mean."""
    return IterationLoad(
        prompt_tokens=float(count * tokens),
        prompt_positions=tokens / HALF if positions is None else positions,
        prompts=float(count),
    )


def seconds(cost: ReplicaCost, load: IterationLoad) -> float:
    """Return the seconds of an iteration."""
    return float(iteration_seconds(cost, load))


# TokenWeave: the latency of one prompt.

WEAVE_LENGTHS = tuple(1024 * 2**power for power in range(7))


class Woven(NamedTuple):
    """Seconds of a prompt with two batches and without."""

    plain_s: float
    woven_s: float


@cache
def token_weave(model: str, tp: int) -> list[Woven]:
    """Return the seconds of one prompt of each length."""
    graph = load_model(model)
    both = [replica(graph, H100_NODE, tp, overlap=form) for form in ("none", "two-batch")]
    return [Woven(*(seconds(cost, prompts(1, tokens)) for cost in both)) for tokens in WEAVE_LENGTHS]


# NanoFlow: an iteration of prompts and of sequences that decode.

DENSE_BATCH = 2048
NANO_LENGTHS = {
    "512 / 512": (512, 512),
    "1024 / 512": (1024, 512),
    "512 / 1024": (512, 1024),
    "LMSYS, 92 / 207": (92, 207),
    "ShareGPT, 299 / 324": (299, 324),
    "Splitwise, 1155 / 211": (1155, 211),
}


class Nano(NamedTuple):
    """Gains of an iteration, and of one whose baseline has an engine's host seconds, which NanoFlow hides."""

    kernels: float
    engine: float


@cache
def nano_flow(tokens_in: int, tokens_out: int) -> Nano:
    """Return the gains at a dense batch of 2,048 tokens, prompts and decoding as the lengths have them."""
    model, fitted = load_model("llama-2-70b"), load_serving_stack("tensorrt-llm").fitted
    plain, nano = (replica(model, A100_NODE, 8, overlap=form) for form in ("none", "nano-batch"))
    hosted = replace(plain, overheads=Overheads(fitted.host_s, fitted.sequence_s))
    decoding = DENSE_BATCH * tokens_out / (tokens_in + tokens_out)
    load = replace(
        prompts((DENSE_BATCH - decoding) / tokens_in, tokens_in),
        sequences=decoding,
        context=tokens_in + tokens_out / HALF,
    )
    least = seconds(nano, load)
    return Nano(seconds(plain, load) / least, seconds(hosted, load) / least)


# NVRAR: all-reduces between nodes, and batches that decode.

KIB = 1024
MESSAGES = {"128 KB": 128 * KIB, "256 KB": 256 * KIB, "512 KB": 512 * KIB, "1 MB": KIB**2, "2 MB": 2 * KIB**2}
NVRAR_RANKS = (16, 32, 64, 128)
NVRAR_BATCHES = (8, 32)
NVRAR_PROMPT, NVRAR_OUTPUT = 1426, 3072


def nvrar_all_reduce(ranks: int) -> list[float]:
    """Return the gain of one all-reduce of each size."""
    times = times_of(PERLMUTTER)
    forms = ALL_REDUCE_FORMS["auto"], ALL_REDUCE_FORMS["recursive-doubling"]
    library, doubling = (
        [float(form(times, size, float(ranks))) for size in MESSAGES.values()] for form in forms
    )
    return [one / other for one, other in zip(library, doubling, strict=True)]


class BatchGain(NamedTuple):
    """Gains of a batch's latency, and of its decoding."""

    latency: float
    decode: float


@cache
def nvrar_batch(ranks: int, batch: int) -> BatchGain:
    """Return the gains of a batch of Llama-3.1-405B."""
    model = load_model("llama-3.1-405b")
    decode = IterationLoad(sequences=float(batch), context=NVRAR_PROMPT + NVRAR_OUTPUT / HALF)
    fill, write = (
        [
            seconds(replica(model, PERLMUTTER, ranks, allreduce=form), load)
            for form in ("auto", "recursive-doubling")
        ]
        for load in (prompts(batch, NVRAR_PROMPT), decode)
    )
    whole = [first + (NVRAR_OUTPUT - 1) * each for first, each in zip(fill, write, strict=True)]
    return BatchGain(whole[0] / whole[1], write[0] / write[1])


# T3: a product with the all-reduce behind it.


class Sublayer(NamedTuple):
    """A product (tokens, inputs/tp) × (inputs/tp, hidden) of a model, with its all-reduce."""

    name: str
    inputs: int


class SublayerModel(NamedTuple):
    """A model by its hidden width, and tokens of a batch."""

    hidden: int
    tokens: int


SUBLAYERS = (Sublayer("OP", 1), Sublayer("FC-2", 4), Sublayer("FC-1", 4), Sublayer("IP", 3))
"""Inputs in hidden widths: attention's result, the second product; backward that of the first one and of QKV."""
T3_MODELS = {"Mega-GPT-2": SublayerModel(3072, 16 * KIB), "T-NLG": SublayerModel(4256, 8 * KIB)}
T3_RANKS = (8, 16)


class Tiled(NamedTuple):
    """Gains of a sublayer with the slow-down of hidden collectives, and without it."""

    usual: float
    without_contention: float


@cache
def t3(name: str, ranks: int) -> list[Tiled]:
    """Return the gains of each sublayer."""
    model, times = T3_MODELS[name], times_of(SIXTEEN_DIES)
    found = []
    for sublayer in SUBLAYERS:
        width = sublayer.inputs * model.hidden
        product = float(times.product(model.tokens, width / ranks, model.hidden, "fp16"))
        reduced = float(times.all_reduce(FP16_BYTES * model.tokens * model.hidden, float(ranks)))
        whole = product + reduced
        gains = [
            whole / (whole - float(tile_hidden_seconds(product, reduced, "all-reduce", slowdown)))
            for slowdown in (times.forms.constants["overlap_slowdown"], 0.0)
        ]
        found.append(Tiled(*gains))
    return found


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean."""
    return float(np.exp(np.mean(np.log(values))))


# EnergonAI: prompts of half the padded length.

ENERGON_BATCHES = (1, 2, 4, 8, 16, 32)
ENERGON_PADDED = (64, 128)
ENERGON_LAYERS = {2: 24, 4: 48}
"""Layers of GPT-3 by tp."""


@cache
def energon_reduction(tp: int, batch: int, padded: int) -> float:
    """Return the share of latency that goes with the padding; attention computes padded sequences in both."""
    cost = replica(_shallow_gpt3(ENERGON_LAYERS[tp]), A100_NODE, tp)
    whole = seconds(cost, prompts(batch, padded))
    kept = seconds(cost, prompts(batch, padded / HALF, positions=padded))
    return 1 - kept / whole


@cache
def _shallow_gpt3(layers: int) -> ModelGraph:
    """Return GPT-3 with so many layers."""
    return load_model(json.dumps({**load_config("gpt-3-175b"), "n_layer": layers}))
