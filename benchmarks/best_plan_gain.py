"""Predict the gain of the best plan over the usual one, as APEX (arXiv 2411.17651) searches it.

Its end-to-end time of a trace is the sum of the iterations of the busiest replica: waiting for arrivals is left out
(``total_time`` in its simulator). With Poisson arrivals a replica with N requests in the mean has at least one for
1 − exp(−N) of the time, N = rate/replicas · latency. Its simulator has no host seconds, and so none are taken here.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from serving_gain_cases import H100_NODE, times_of

from meshwright.cluster.load import load_cluster
from meshwright.cost.serving.pools_state import serving_state
from meshwright.cost.serving.replica_load import ReplicaLoad
from meshwright.cost.serving.replica_pools import PoolArrays, ServedModel
from meshwright.model.graph import ModelGraph
from meshwright.model.load import load_model
from meshwright.program.serving.serving_degrees import ReplicaDegrees
from meshwright.program.serving.storage_formats import StorageFormats
from meshwright.stack.serving.serving_stack import ServingStack, load_serving_stack


class Trace(NamedTuple):
    """Mean lengths of requests."""

    input_tokens: float
    output_tokens: float


TRACES = {"summarization": Trace(2742, 172), "creation": Trace(307, 1128), "chat": Trace(73, 189)}
RATE_PER_S = 0.25
H200_NODE, H100_NODES = "h200-sxm-141gb x 8", "h100-sxm-80gb x 16"


class Published(NamedTuple):
    """Published gains of a setting: of plans that engines can run, and of all plans; None: not in what was read."""

    model: str
    cluster: str
    trace: str
    feasible: float | None
    unconstrained: float


PUBLISHED = (
    Published("llama-3.1-70b", H100_NODE, "summarization", 1.49, 1.70),
    Published("llama-3.1-70b", H100_NODE, "creation", 1.75, 2.07),
    Published("llama-3.1-70b", H100_NODE, "chat", 1.45, 1.97),
    Published("mistral-large-2407", H100_NODE, "creation", 1.57, 2.38),
    Published("mixtral-8x22b", H100_NODE, "chat", 1.17, 3.37),
    Published("mixtral-8x22b", H100_NODE, "summarization", 1.14, 2.33),
    Published("llama-3.1-70b", H200_NODE, "chat", None, 2.22),
    Published("mixtral-8x22b", H200_NODE, "chat", None, 2.76),
    Published("llama-3.1-405b", H100_NODES, "creation", None, 1.88),
)


class Space(NamedTuple):
    """Plans of a cluster as arrays: replicas, and degrees of one."""

    replicas: NDArray[Any]
    degrees: ReplicaDegrees


class PlanGain(NamedTuple):
    """Gains of the best plan over the usual one in a mean request's latency, and in busy seconds with that plan."""

    latency: float
    busy: float
    busy_plan: str


@cache
def best_plan_gain(model: str, cluster: str, trace: str) -> PlanGain:
    """Return the gains over tp inside a node and pp between nodes."""
    graph, devices = load_model(model), load_cluster(cluster).pool
    space, lengths, engine = _plans(graph, devices.count), TRACES[trace], _without_host("vllm")
    pool = PoolArrays(
        degrees=space.degrees,
        formats=StorageFormats(),
        chunk_tokens=float(engine.chunk_tokens),
        max_sequences=float(engine.max_sequences),
        kv_fraction=engine.kv_fraction,
        replicas=space.replicas,
    )
    load = ReplicaLoad(
        input_tokens=lengths.input_tokens, output_tokens=lengths.output_tokens, rate_per_s=RATE_PER_S
    )
    served = ServedModel(
        model=graph, times=times_of(cluster), memory_bytes=devices.device.memory_bytes, engine=engine
    )
    found = serving_state(served, pool, load)
    seconds = found.steady.ttft_s + (lengths.output_tokens - 1) * found.steady.tpot_s
    latency = np.where(found.fits, seconds, np.nan)
    busy = 1 - np.exp(-RATE_PER_S / space.replicas * latency)
    usual = _usual(space, devices.count, devices.node.devices)
    least = int(np.nanargmin(busy))
    return PlanGain(
        latency=float(latency[usual] / np.nanmin(latency)),
        busy=float(busy[usual] / busy[least]),
        busy_plan=_plan_name(space, least),
    )


def _without_host(stack: str) -> ServingStack:
    engine = load_serving_stack(stack)
    nothing = {"host_s": 0.0, "sequence_s": 0.0, "prompt_s": 0.0}
    return engine.model_copy(update={"fitted": engine.fitted.model_copy(update=nothing)})


def _usual(space: Space, devices: int, node: int) -> int:
    """Return the index of one replica with tp inside a node, pp between nodes, and experts cut by tp."""
    degrees = space.degrees
    usual = (space.replicas == 1) & (degrees.tp == min(node, devices)) & (degrees.ep == 1)
    (index,) = np.flatnonzero(usual & (degrees.attention_dp == 1))
    return int(index)


def _plans(model: ModelGraph, devices: int) -> Space:
    """Return all plans on so many devices whose degrees divide heads, layers and experts."""
    columns = np.array([*_degrees(model, devices)], float).T
    names = ("attention_dp", "tp", "pp", "ep", "etp")
    return Space(columns[0], ReplicaDegrees(**dict(zip(names, columns[1:], strict=True))))


def _degrees(model: ModelGraph, devices: int) -> Iterator[tuple[int, ...]]:
    """Yield replicas and the degrees of one: attention_dp, tp, pp, ep, etp."""
    arch = model.architecture
    powers = [2**power for power in range(devices.bit_length())]
    shared = powers if arch.moe is not None else [1]
    for replicas, pp, dp in ((one, two, three) for one in powers for two in powers for three in shared):
        tp, rest = divmod(devices, replicas * pp * dp)
        if rest or not tp or arch.heads % tp or arch.layers % pp:
            continue
        if arch.moe is None:
            yield replicas, dp, tp, pp, 1, 1
            continue
        for ep in powers:
            if tp * dp % ep == 0 and arch.moe.experts % ep == 0:
                yield replicas, dp, tp, pp, ep, tp * dp // ep


def _plan_name(space: Space, index: int) -> str:
    values = {"replicas": space.replicas} | {
        name: np.asarray(getattr(space.degrees, name)) for name in ("attention_dp", "tp", "pp", "ep")
    }
    return " ".join(f"{name} {value[index]:.0f}" for name, value in values.items() if value[index] > 1)
