"""Bytes that codecs, anchors and outer optimizers move through a device's memory, from which their seconds follow.

Assumed, by the passes over values of 4 bytes that each codec makes: none of these kernels is in the measured data. They
are memory-bound: the factors of ``low_rank`` have a few columns.
"""

from collections.abc import Callable, Mapping

from meshwright.plans.synchronisation.compression import Compression
from meshwright.plans.synchronisation.synchronisation import Synchronisation
from meshwright.program.synchronisation.encoded_bytes import codec_name

VALUE = 4
ANCHOR_PASSES = {None: 6, "sgd": 6, "momentum": 8, "nesterov": 8, "adam": 10}
"""Passes over values of an exchange of parameters, by outer optimizer: Δ, the anchor with its moments, merging."""
MOMENT_PASSES = 4
RESIDUAL_PASSES = 4
Rule = Callable[[Compression, int], float]
PASSES: Mapping[str, Rule] = {
    "none": lambda said, ranks: 0.0,
    "quantise": lambda said, ranks: 8.0,
    "ternary": lambda said, ranks: 3.0 + ranks,
    "low_rank": lambda said, ranks: 4.0,
    "dct": lambda said, ranks: 8.0 + ranks * _share(said),
    "select": lambda said, ranks: 4.0 + ranks * _share(said),
    "top_k": lambda said, ranks: 6.0 + 2 * ranks * _share(said),
    "random_k": lambda said, ranks: 4.0 + 2 * ranks * _share(said),
    "sketch": lambda said, ranks: 6.0 * float(said.sketch.rows if said.sketch else 1),
}
"""Passes over a stretch's values to encode it, and to decode and add up what comes; lsh is a part of the passes."""


def _share(said: Compression) -> float:
    """Return the share of values that a message has."""
    if said.dct is not None:
        return float(said.dct.keep) / float(said.dct.chunk)
    kept = said.select.keep if said.select else said.top_k or said.random_k or 1.0
    return float(kept)


def codec_bytes_moved(said: Compression | None, elements: float, ranks: int) -> float:
    """Return the bytes that encoding and decoding of values moves on each of ``ranks``."""
    name = codec_name(said)
    if said is None or name not in PASSES:
        return 0.0
    passes = PASSES[name](said, ranks) + (RESIDUAL_PASSES if said.error_feedback else 0)
    return passes * VALUE * elements


def exchange_bytes_moved(entry: Synchronisation, elements: float) -> float:
    """Return the bytes that an exchange between steps moves besides its codec: Δ, anchor, outer optimizer, merging."""
    if entry.state != "parameter":
        return MOMENT_PASSES * VALUE * elements
    outer = entry.outer_in_full
    return ANCHOR_PASSES[None if outer is None else outer.name] * VALUE * elements
