"""Copies over the host links, and caches in the host's memory, of a replica whose phases have layouts of their own.

    out  a sequence's cache in the fullest stage of prefill, evenly over the ranks that hold it, over the link
    in   what the fullest rank of decode holds of a sequence, over the link; ranks of attention_dp have others
    room (memory of the hosts of a replica − a copy of all weights on each)/cache of a prompt, whole ones

A link has its nominal rate times that which copies reach, as with offload in training (``pipeline_time/``). The host
keeps one copy of a cache, without copies of heads. Replicas on one host share its memory, and its copy of the weights.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.pipeline_time.offload_copies import copy_seconds
from meshwright.cost.serving.phase_layouts import HostCopies
from meshwright.cost.serving.replica_load import ReplicaLoad
from meshwright.cost.serving.replica_pools import PoolArrays, ServedModel
from meshwright.program.serving.kv_bytes import sequence_cache_bytes, stage_sequence_bytes
from meshwright.program.serving.serving_degrees import ReplicaDegrees
from meshwright.program.serving.weight_bytes import rank_weight_bytes
from meshwright.program.serving.weight_reshard import reloaded_weight_bytes

WHOLE = ReplicaDegrees()


def host_copies(
    served: ServedModel, prefill: PoolArrays, decode: PoolArrays, load: ReplicaLoad
) -> HostCopies:
    """Return the seconds of a replica's copies between its devices and their hosts."""
    model, forms, formats = served.model, served.times.forms, decode.formats
    before, after = prefill.degrees, decode.degrees
    tokens = np.ceil(load.input_tokens)
    stage = stage_sequence_bytes(model, tokens, WHOLE, formats, before.pp)
    out = stage / (before.tp * before.cp * before.attention_dp)
    fetched = sequence_cache_bytes(model, tokens, after, formats, decode.block_tokens) / after.attention_dp
    return HostCopies(
        out_s=copy_seconds(out, forms),
        in_s=copy_seconds(fetched, forms),
        change_s=copy_seconds(reloaded_weight_bytes(model, formats, before, after), forms),
        back_s=copy_seconds(reloaded_weight_bytes(model, formats, after, before), forms),
    )


def buffered_bytes(served: ServedModel, pool: PoolArrays, load: ReplicaLoad) -> NDArray[Any]:
    """Return the bytes of a prompt's cache in the host's memory."""
    tokens = np.ceil(load.input_tokens)
    return sequence_cache_bytes(served.model, tokens, WHOLE, pool.formats, pool.block_tokens)


def buffer_sequences(served: ServedModel, pool: PoolArrays, load: ReplicaLoad) -> NDArray[Any]:
    """Return the sequences of a replica in the memory of its hosts: infinity where its size is unknown."""
    if served.host_memory_bytes is None:
        return np.asarray(np.inf)
    room = served.host_memory_bytes - rank_weight_bytes(served.model, WHOLE, pool.formats)
    hosts = np.asarray(pool.degrees.devices) / served.devices_of_host
    return np.floor(np.maximum(room, 0.0) * hosts / buffered_bytes(served, pool, load))
