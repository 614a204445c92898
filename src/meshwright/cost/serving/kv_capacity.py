"""Room for sequences and tokens in the cache of a replica.

A rank of attention_dp has the cache of its own sequences. A sequence takes whole blocks for its input and the share of
its output that the engine reserves; a shared prefix is kept once on each rank of attention_dp.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.serving.hardware_times import serving_constants
from meshwright.cost.serving.memory import iteration_activation_bytes, kv_room_bytes
from meshwright.cost.serving.replica_load import ReplicaLoad
from meshwright.cost.serving.replica_pools import PoolArrays, ServedModel
from meshwright.program.local_shape import Number
from meshwright.program.serving.kv_bytes import sequence_cache_bytes
from meshwright.program.serving.weight_bytes import rank_weight_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCapacity:
    """Bytes on the fullest rank of a replica, and room of the whole replica; 0 where weights do not fit."""

    weights_bytes: NDArray[Any]
    activation_bytes: NDArray[Any]
    buffer_bytes: float
    room_bytes: NDArray[Any]
    sequences: NDArray[Any]
    tokens: NDArray[Any]

    @property
    def fits(self) -> NDArray[np.bool_]:
        """True where at least one sequence has room."""
        return np.asarray(self.sequences >= 1)


def kv_capacity(served: ServedModel, pool: PoolArrays, load: ReplicaLoad) -> KvCapacity:
    """Return the room for the cache of the replicas of a pool."""
    model, degrees, block = served.model, pool.degrees, pool.block_tokens

    def bytes_of(tokens: Number) -> NDArray[Any]:
        return sequence_cache_bytes(model, tokens, degrees, pool.formats, block)

    weights = rank_weight_bytes(model, degrees, pool.formats)
    activations = iteration_activation_bytes(model, pool.chunk_tokens, degrees)
    kept_free = served.engine.kept_free_bytes
    room = kv_room_bytes(served.memory_bytes, weights, activations, pool.kv_fraction, kept_free)
    prefix = np.asarray(load.prefix_tokens)
    shared = np.where(prefix >= block, bytes_of(np.floor(prefix / block) * block), 0.0)
    reserved = np.ceil(load.input_tokens + served.engine.reserved_output * np.asarray(load.output_tokens))
    own = np.maximum(bytes_of(reserved) - shared, 1.0)
    left = np.maximum(room, 0.0)
    longest = np.ceil((load.input_tokens + np.asarray(load.output_tokens)) / block) * block
    tokens = np.floor(left / bytes_of(longest) * longest / block) * block
    return KvCapacity(
        weights_bytes=weights,
        activation_bytes=np.asarray(activations),
        buffer_bytes=serving_constants()["buffer_bytes"],
        room_bytes=room,
        sequences=np.maximum(left - shared, 0.0) / own * degrees.attention_dp,
        tokens=tokens * degrees.attention_dp,
    )
