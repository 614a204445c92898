"""Step time and memory of a GPT as arXiv 2410.00273 models them: 1-D tensor parallelism, micro-batch 1, 1F1B.

operator    latency + F/(0.8·peak), and beyond it what its bytes take at full memory bandwidth
collective  n ranks, k of them per fast domain, logical size V, w = (n−1)/n·V: in one domain αf·(n−1) + w/(0.7·fast);
            across max(w/(k·0.7·slow), w/(0.7·fast)) + αs·(n/k − 1) + αf·(n − n/k): every device has a NIC
message     α + V/(0.7·link); of the P−1 boundaries those that cross domains are charged nothing when k > 1
            (as the paper's results are computed; with them the B200 rows' share of pp would be about ten times)
pipeline    bubble (P−1)·(one micro-batch of a stage with its messages): our 1F1B form with equal stages
dp          a gather and a reduction of a layer's weights, and for every other layer what its passes do not hide
memory      weights, gradients, optimizer (6 × weights / dp), min(P, m) micro-batches of activations

Ignored by the paper: host time, contention, fragmentation, the first and last stage's vocabulary.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from arxiv_2410_00273_layer import (
    ELEMENT_BYTES,
    GptShape,
    PublishedOperator,
    layer_operators,
)

from meshwright.cost.pipeline_time.gpipe_1f1b_interleaved import one_f_one_b_seconds
from meshwright.errors import InputError, Problem, nearest

GPT3_1T = GptShape(seq_len=2048, hidden=25600, heads=160, ffn=102400, layers=128)
OPTIMIZER_RATIO = 6


@dataclass(frozen=True, slots=True)
class Degrees:
    """Data, tensor and pipeline parallelism: of the plan, or the members of each that share a fast domain."""

    dp: int
    tp: int
    pp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """The paper's constants for one system; SI units."""

    matrix_flops: float
    vector_flops: float
    memory_bytes_per_s: float
    capacity_bytes: float
    fast_bytes_per_s: float
    slow_bytes_per_s: float
    operator_latency_s: float
    compute_efficiency: float
    link_efficiency: float
    fast_latency_s: float
    slow_latency_s: float

    def compute_seconds(self, operator: PublishedOperator, backward: bool) -> float:
        """An operator's arithmetic and launch."""
        peak = self.matrix_flops if operator.unit == "matrix" else self.vector_flops
        return self.operator_latency_s + operator.flops[backward] / (self.compute_efficiency * peak)

    def memory_seconds(self, operator: PublishedOperator, backward: bool) -> float:
        """What an operator's bytes take beyond its arithmetic."""
        moving = operator.moved_bytes[backward] / self.memory_bytes_per_s
        return max(moving - self.compute_seconds(operator, backward), 0.0)

    def collective_seconds(self, logical_bytes: float, ranks: int, local: int) -> float:
        """All-gather or reduce-scatter."""
        if ranks == 1 or logical_bytes == 0:
            return 0.0
        wire, domains = (ranks - 1) / ranks * logical_bytes, ranks // local
        fast = wire / (self.link_efficiency * self.fast_bytes_per_s) if local > 1 else 0.0
        slow = wire / (local * self.link_efficiency * self.slow_bytes_per_s) if domains > 1 else 0.0
        hops = self.slow_latency_s * (domains - 1) + self.fast_latency_s * (ranks - domains)
        return hops + max(fast, slow)

    def message_seconds(self, message_bytes: float, ranks: int, local: int) -> float:
        """The mean message of a pipeline."""
        if ranks == 1:
            return 0.0
        if local == 1:
            return self.slow_latency_s + message_bytes / (self.link_efficiency * self.slow_bytes_per_s)
        inside = (ranks - ranks // local) / (ranks - 1)
        return inside * (self.fast_latency_s + message_bytes / (self.link_efficiency * self.fast_bytes_per_s))


@dataclass(frozen=True, slots=True)
class PublishedStep:
    """Seconds of a step by part and bytes of a rank by kind; the totals are their sums."""

    parts: dict[str, float]
    memory: dict[str, float]

    @property
    def step_s(self) -> float:
        """Length of the step."""
        return sum(self.parts.values())

    @property
    def memory_bytes(self) -> float:
        """Peak of a rank."""
        return sum(self.memory.values())


@cache
def system(name: str) -> System:
    """The paper's constants for ``a100``, ``h200`` or ``b200``. Raises InputError for another name."""
    with Path(__file__).with_name("arxiv_2410_00273_systems.csv").open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    known = sorted({row["system"] for row in rows} - {"all"})
    if name not in known:
        raise InputError(Problem("system", name, "the paper has no such system", nearest(name, known)))
    return System(**{row["name"]: float(row["value"]) for row in rows if row["system"] in (name, "all")})


def comprehensive_step(
    shape: GptShape, chosen: System, degrees: Degrees, local: Degrees, global_batch: int
) -> PublishedStep:
    """One step; ``local`` says how many members of each group share a fast domain. Raises InputError."""
    problems = list(_problems(shape, degrees, local, global_batch))
    if problems:
        raise InputError(problems)
    operators = layer_operators(shape, degrees.tp, chosen.matrix_flops / chosen.vector_flops)
    micro_batches, layers = global_batch // degrees.dp, shape.layers // degrees.pp
    passes = [_layer_pass(operators, chosen, back, degrees.tp, local.tp) for back in (False, True)]
    boundary_bytes = ELEMENT_BYTES * (shape.seq_len // degrees.tp) * shape.hidden
    message = chosen.message_seconds(boundary_bytes, degrees.pp, local.pp)
    forward, backward = (layers * sum(parts.values()) + message for parts in passes)
    weights = ELEMENT_BYTES * sum(op.parameters for op in operators)
    gather = chosen.collective_seconds(weights, degrees.dp, local.dp)
    parts = {name: micro_batches * layers * (passes[0][name] + passes[1][name]) for name in passes[0]}
    parts["dp"] = 2 * gather + (layers - 1) * sum(max(gather - sum(p.values()), 0.0) for p in passes)
    parts["pp"] = 2 * micro_batches * message
    parts["bubble"] = bubble_seconds(forward, backward, micro_batches, degrees.pp)
    return PublishedStep(parts, _memory(operators, layers, degrees, micro_batches))


def _layer_pass(
    operators: tuple[PublishedOperator, ...], chosen: System, backward: bool, tp: int, local_tp: int
) -> dict[str, float]:
    """Seconds of one layer's forward or backward pass by part."""
    return {
        "compute": sum(chosen.compute_seconds(op, backward) for op in operators),
        "memory": sum(chosen.memory_seconds(op, backward) for op in operators),
        "tp": sum(chosen.collective_seconds(op.exchanged_bytes[backward], tp, local_tp) for op in operators),
    }


def _memory(
    operators: tuple[PublishedOperator, ...], layers: int, degrees: Degrees, micro_batches: int
) -> dict[str, float]:
    held = float(layers * ELEMENT_BYTES * sum(op.parameters for op in operators))
    kept = layers * sum(op.kept_bytes for op in operators)
    return {
        "parameters": held,
        "gradients": held,
        "optimizer": OPTIMIZER_RATIO * held / degrees.dp,
        "activations": min(degrees.pp, micro_batches) * kept,
    }


def bubble_seconds(forward: float, backward: float, micro_batches: int, ranks: int) -> float:
    """What 1F1B takes beyond the work of one rank, with equal stages and messages inside the passes."""
    stages = np.full((1, ranks), forward), np.full((1, ranks), backward)
    length = one_f_one_b_seconds(*stages, np.zeros(1), np.array([micro_batches]), ranks)
    return float(length[0]) - micro_batches * (forward + backward)


def placements(degrees: Degrees, domain: int) -> Iterator[Degrees]:
    """Every way to fill a fast domain of ``domain`` devices with members of the three groups."""
    if degrees.dp * degrees.tp * degrees.pp <= domain:
        yield degrees
        return
    for tp in _divisors(domain):
        for dp in _divisors(domain // tp):
            pp = domain // tp // dp
            if degrees.tp % tp == 0 and degrees.dp % dp == 0 and degrees.pp % pp == 0:
                yield Degrees(dp, tp, pp)


def _divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0]


def _problems(shape: GptShape, degrees: Degrees, local: Degrees, global_batch: int) -> Iterator[Problem]:
    for axis in ("dp", "tp", "pp"):
        degree, members = getattr(degrees, axis), getattr(local, axis)
        if degree < 1 or members < 1 or degree % members:
            yield Problem(f"local.{axis}", members, f"must be at least 1 and divide {axis} = {degree}", "1")
    for axis, whole, name in (
        ("tp", shape.heads, "heads"),
        ("tp", shape.seq_len, "seq_len"),
        ("pp", shape.layers, "layers"),
        ("dp", global_batch, "global_batch"),
    ):
        degree = getattr(degrees, axis)
        if degree >= 1 and (whole < degree or whole % degree):
            rule = f"{name} % {axis} = {whole} % {degree} = {whole % degree} ≠ 0"
            yield Problem(axis, degree, rule, f"a divisor of {whole}")
