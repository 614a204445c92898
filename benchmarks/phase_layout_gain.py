"""Predict the gain of a layout for each phase (Seesaw) over the best single layout, in the setting of its paper.

Requests all come at once, as in an offline batch: a closed loop of as many clients. Both sides choose among all
replicas, tp and pp of powers of two on eight devices and among chunks; a replica whose phases have unlike layouts is
one more choice, so that the gain is that of re-sharding alone, under the same engine.
"""

from collections.abc import Iterator
from functools import cache
from itertools import permutations
from math import inf, nan
from pathlib import Path
from typing import NamedTuple

import numpy as np

from meshwright.cluster.load import load_cluster
from meshwright.cost.serving.hardware_times import serving_times_for
from meshwright.cost.serving.pools_state import PoolsState, phased_pool_state, serving_state
from meshwright.cost.serving.replica_load import ReplicaLoad
from meshwright.cost.serving.replica_pools import PoolArrays, ServedModel
from meshwright.model.load import load_model
from meshwright.program.serving.serving_degrees import ReplicaDegrees
from meshwright.program.serving.storage_formats import StorageFormats
from meshwright.stack.serving.serving_stack import load_serving_stack

CLUSTERS = {
    "8 L4": "l4 x 8",
    "8 A10": str(Path(__file__).with_name("serving-gains") / "eight-a10.yaml"),
    "8 A100 40 GB SXM": "a100-sxm-40gb x 8",
}
MODELS = ("codellama-34b", "llama-2-70b")
DEVICES = 8
CHUNKS = np.array([512.0, 2048.0, 8192.0])
KV_FRACTION = 0.9


class Requests(NamedTuple):
    """An offline batch: requests, and tokens of each in and out."""

    count: int
    tokens_in: int
    tokens_out: int


DATA_SETS = {
    "arxiv-summarization": Requests(500, 3000, 200),
    "ShareGPT": Requests(2000, 299, 324),
}
"""Counts and the lengths of arxiv-summarization are assumed; those of ShareGPT are the means that NanoFlow states."""


class Choice(NamedTuple):
    """A way to serve: its name and its requests/s."""

    name: str
    requests_per_s: float


class PhaseGain(NamedTuple):
    """The best single layout, and the best one with a layout for each phase."""

    single: Choice
    phased: Choice

    @property
    def gain(self) -> float:
        """Requests/s of the second over those of the first."""
        return self.phased.requests_per_s / self.single.requests_per_s


@cache
def phase_layout_gain(model: str, cluster: str, data: str) -> PhaseGain:
    """Return the best of both sides."""
    served, batch = served_model(model, CLUSTERS[cluster]), DATA_SETS[data]
    load = ReplicaLoad(
        input_tokens=float(batch.tokens_in),
        output_tokens=float(batch.tokens_out),
        concurrency=float(batch.count),
        rate_per_s=nan,
    )
    single, phased = _single(served, load), _phased(served, load)
    return PhaseGain(*(max(side, key=lambda one: one.requests_per_s) for side in (single, phased)))


def served_model(model: str, cluster: str) -> ServedModel:
    """Return a model under vLLM on a cluster."""
    pool = load_cluster(cluster).pool
    return ServedModel(
        model=load_model(model),
        times=serving_times_for(pool),
        memory_bytes=pool.device.memory_bytes,
        engine=load_serving_stack("vllm"),
        host_memory_bytes=pool.node.host_memory_bytes,
        devices_of_host=pool.devices_of_host,
    )


def layouts(devices: int) -> Iterator[tuple[int, int]]:
    """Yield tp and pp of replicas of some devices."""
    for power in range(devices.bit_length()):
        if devices % 2**power == 0:
            yield 2**power, devices // 2**power


def _single(served: ServedModel, load: ReplicaLoad) -> Iterator[Choice]:
    for replicas in (1, 2, 4, 8):
        for layout in layouts(DEVICES // replicas):
            yield _choice(
                f"{replicas}× {_text(layout)}", serving_state(served, _pool(layout, replicas), load)
            )


def _phased(served: ServedModel, load: ReplicaLoad) -> Iterator[Choice]:
    for replicas in (1, 2, 4):
        for pair in permutations(layouts(DEVICES // replicas), 2):
            pools = (_pool(layout, replicas) for layout in pair)
            name = f"{replicas}× {_text(pair[0])} → {_text(pair[1])}"
            yield _choice(name, phased_pool_state(served, *pools, load))


def _pool(layout: tuple[int, int], replicas: int) -> PoolArrays:
    """Return replicas with each of the chunks."""
    tp, pp = layout
    return PoolArrays(
        degrees=ReplicaDegrees(tp=tp, pp=pp),
        formats=StorageFormats(),
        chunk_tokens=CHUNKS,
        max_sequences=inf,
        kv_fraction=KV_FRACTION,
        replicas=float(replicas),
    )


def _choice(name: str, state: PoolsState) -> Choice:
    """Return the requests/s with the best chunk."""
    return Choice(name, float(np.max(np.where(state.fits, state.steady.requests_per_s, 0.0))))


def _text(layout: tuple[int, int]) -> str:
    return "·".join(
        f"{name} {degree}" for name, degree in zip(("tp", "pp"), layout, strict=True) if degree > 1
    )
