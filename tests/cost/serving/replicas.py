"""Replicas that tests of serving's cost share."""

from typing import Any

import numpy as np

from meshwright.cluster.load import load_cluster
from meshwright.cost.serving.hardware_times import serving_times_for
from meshwright.cost.serving.iteration import Overheads, ReplicaCost
from meshwright.cost.serving.phase_times import PhaseTimes
from meshwright.cost.serving.replica_load import ReplicaLimits, ReplicaLoad
from meshwright.model.load import load_model
from meshwright.program.serving.serving_degrees import ReplicaDegrees
from meshwright.program.serving.storage_formats import StorageFormats

FP8 = StorageFormats(weights="fp8", kv="fp8")
OVERHEADS = Overheads(host_s=0.001, sequence_s=1e-6)


def replica(
    model: str = "llama-3.1-70b",
    cluster: str = "h200-sxm-141gb x 8",
    formats: StorageFormats = FP8,
    overheads: Overheads = OVERHEADS,
    **degrees: Any,
) -> ReplicaCost:
    """Return the cost of a replica with some degrees."""
    return ReplicaCost(
        model=load_model(model),
        times=serving_times_for(load_cluster(cluster).pool),
        degrees=ReplicaDegrees(**degrees),
        formats=formats,
        overheads=overheads,
    )


def phases(
    cost: ReplicaCost,
    *,
    input_tokens: Any = 1024.0,
    output_tokens: Any = 1024.0,
    max_sequences: Any = np.inf,
    room: Any = np.inf,
    mixed: bool = True,
    chunk: Any = 8192.0,
    align_iterations: float = 0.0,
    **load: Any,
) -> PhaseTimes:
    """Return the phases of a replica under a load."""
    return PhaseTimes(
        cost,
        ReplicaLoad(input_tokens=input_tokens, output_tokens=output_tokens, **load),
        ReplicaLimits(
            chunk_tokens=chunk,
            max_sequences=max_sequences,
            room_sequences=room,
            mixed=mixed,
            align_iterations=align_iterations,
        ),
    )
