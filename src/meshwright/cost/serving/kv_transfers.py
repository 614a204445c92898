"""Seconds in which the cache of a prompt moves from a replica that prefills to one that decodes.

    t = p2p latency + max(received, sent)/rate

received: what the fullest rank of the receiver holds of the sequence, a latent cache whole on each rank of tp. sent:
what all ranks of the receiver take of the sender's fullest stage, evenly of the ranks that hold it. Both are those of
the change of layout rank by rank (``program/serving/cache_reshard.py``) where degrees divide each other. The rate is
that of the fast domain if both replicas are within one, else the share of the network cards of one device. Ignored:
layers that move while later ones are still computed, which hides all but the last; receivers that hand on copies.

Links carry one cache after the other, those of each rank of attention_dp at once, so that R replicas

    R_p·attention_dp·rate/sent,     R_d·attention_dp·rate/received

send and receive at most so many caches/s.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.serving.hardware_times import ServingTimes
from meshwright.model.graph import ModelGraph
from meshwright.program.local_shape import Number
from meshwright.program.serving.kv_bytes import sequence_cache_bytes, stage_sequence_bytes
from meshwright.program.serving.serving_degrees import ReplicaDegrees
from meshwright.program.serving.storage_formats import StorageFormats


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheTransfer:
    """Seconds of a hand-over, and the caches/s that links of a replica that prefills and of one that decodes carry."""

    seconds: NDArray[Any]
    sent_per_s: NDArray[Any]
    received_per_s: NDArray[Any]

    def most_per_s(self, senders: Number, receivers: Number) -> NDArray[Any]:
        """Return the caches/s that links of so many replicas carry."""
        return np.minimum(self.sent_per_s * senders, self.received_per_s * receivers)


def cache_transfer(
    model: ModelGraph,
    times: ServingTimes,
    tokens: Number,
    formats: StorageFormats,
    sender: ReplicaDegrees,
    receiver: ReplicaDegrees,
) -> CacheTransfer:
    """Return how the cache of a sequence of ``tokens`` moves."""
    forms = times.forms
    received = sequence_cache_bytes(model, tokens, receiver, formats)
    taken = stage_sequence_bytes(model, tokens, receiver, formats, sender.pp)
    sent = taken / np.asarray(sender.tp * sender.cp)
    crosses = np.asarray(sender.devices + receiver.devices) > forms.domain
    latency = np.asarray(forms.p2p(0.0, crosses))
    return CacheTransfer(
        seconds=np.asarray(forms.p2p(np.maximum(received, sent), crosses)),
        sent_per_s=np.asarray(sender.attention_dp / (forms.p2p(sent, crosses) - latency)),
        received_per_s=np.asarray(receiver.attention_dp / (forms.p2p(received, crosses) - latency)),
    )
