"""Seconds in which the cache of a prompt moves from a replica that prefills to one that decodes.

    t = p2p latency + bytes/(min(senders, receivers)·rate)

Every rank of the smaller replica uses its link: that of the fast domain if both replicas are within one, else its share
of the network cards. Copies of heads are made by the receivers. Ignored: layers that move while later ones are still
computed, which hides all but the last; a re-shard between ranks of other cuts at less than the full rate.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.serving.hardware_times import ServingTimes
from meshwright.model.graph import ModelGraph
from meshwright.program.local_shape import Number
from meshwright.program.serving.kv_bytes import sequence_cache_bytes
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
    moved = sequence_cache_bytes(model, tokens, ReplicaDegrees(), formats)
    links = np.minimum(_ranks_of_a_sequence(sender), _ranks_of_a_sequence(receiver))
    crosses = np.asarray(sender.devices + receiver.devices) > forms.domain
    return np.asarray(forms.p2p(moved / links, crosses))


def _ranks_of_a_sequence(degrees: ReplicaDegrees) -> Number:
    """Return the ranks that hold a part of one sequence's cache."""
    return degrees.tp * degrees.pp * degrees.cp
