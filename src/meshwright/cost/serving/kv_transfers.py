"""Seconds in which the cache of a prompt moves from a replica that prefills to one that decodes.

    t = p2p latency + max(received, sent)/rate

received: what the fullest rank of the receiver holds of the sequence, a latent cache whole on each rank of tp. sent:
what all ranks of the receiver take of the sender's fullest stage, evenly of the ranks that hold it. Both are those of
the change of layout rank by rank (``program/serving/cache_reshard.py``) where degrees divide each other. The rate is
that of the fast domain if both replicas are within one, else the share of the network cards of one device. Ignored:
layers that move while later ones are still computed, which hides all but the last; receivers that hand on copies.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.serving.hardware_times import ServingTimes
from meshwright.model.graph import ModelGraph
from meshwright.program.local_shape import Number
from meshwright.program.serving.kv_bytes import sequence_cache_bytes, stage_sequence_bytes
from meshwright.program.serving.serving_degrees import ReplicaDegrees
from meshwright.program.serving.storage_formats import StorageFormats


def hand_over_seconds(
    model: ModelGraph,
    times: ServingTimes,
    tokens: Number,
    formats: StorageFormats,
    sender: ReplicaDegrees,
    receiver: ReplicaDegrees,
) -> NDArray[Any]:
    """Return the seconds to move the cache of a sequence of ``tokens``."""
    forms = times.forms
    received = sequence_cache_bytes(model, tokens, receiver, formats)
    taken = stage_sequence_bytes(model, tokens, receiver, formats, sender.pp)
    sent = taken / np.asarray(sender.tp * sender.cp)
    crosses = np.asarray(sender.devices + receiver.devices) > forms.domain
    return np.asarray(forms.p2p(np.maximum(received, sent), crosses))
