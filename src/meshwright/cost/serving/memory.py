"""Room for the cache on the fullest rank of a replica.

    left = memory − weights − activations of an iteration − buffers
    room = min(left · kv_fraction, left − kept free)

Activations of an iteration of T tokens a rank: T rows of some copies of the stream and of the feed-forward part's
inputs, and logits of the sequences in fp32. Buffers: graphs, workspaces, communication (``data/constants.csv``). Kept
free: what an engine cannot ask for, where its share is one of the whole device (``stack/serving/files``).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.serving.hardware_times import ACTIVATION_BYTES, serving_constants
from meshwright.model.graph import ModelGraph
from meshwright.program.local_shape import Number
from meshwright.program.serving.serving_degrees import ReplicaDegrees


def iteration_activation_bytes(model: ModelGraph, tokens: Number, degrees: ReplicaDegrees) -> Number:
    """Return the bytes that live at once in an iteration of ``tokens`` on a rank of attention_dp."""
    arch = model.architecture
    wide = arch.intermediate / np.asarray(degrees.tp)
    if arch.moe is not None:
        routed = arch.moe.intermediate * arch.moe.experts_per_token / np.asarray(degrees.etp)
        wide = np.maximum(wide, routed)
    rows = tokens / np.asarray(degrees.cp)
    return ACTIVATION_BYTES * rows * (serving_constants()["activation_copies"] * arch.hidden + 3 * wide)


def kv_room_bytes(
    memory_bytes: float,
    weights_bytes: Number,
    activation_bytes: Number,
    kv_fraction: Number,
    kept_free_bytes: float = 0.0,
) -> NDArray[Any]:
    """Return the bytes for the cache on the fullest rank, negative where weights do not fit."""
    left = memory_bytes - weights_bytes - activation_bytes - serving_constants()["buffer_bytes"]
    return np.where(left > 0, np.minimum(left * kv_fraction, left - kept_free_bytes), left)
