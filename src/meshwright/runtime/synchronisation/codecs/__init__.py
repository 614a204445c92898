"""Codecs of ``synchronise``: one file each, made from a ``CodecSetting``."""

from collections.abc import Mapping

from meshwright.program.synchronisation.encoded_bytes import NONE
from meshwright.runtime.synchronisation.codecs.codec import Codec, GatheredCodec, ReducedCodec, ScatteredCodec
from meshwright.runtime.synchronisation.codecs.dct import Dct
from meshwright.runtime.synchronisation.codecs.low_rank_factors import LowRank
from meshwright.runtime.synchronisation.codecs.quantise import Quantise
from meshwright.runtime.synchronisation.codecs.random_k import RandomK
from meshwright.runtime.synchronisation.codecs.select import Select
from meshwright.runtime.synchronisation.codecs.sketch import CountSketch
from meshwright.runtime.synchronisation.codecs.ternary import Ternary
from meshwright.runtime.synchronisation.codecs.top_k import TopK
from meshwright.runtime.synchronisation.codecs.uncompressed import Uncompressed

SCATTERED: Mapping[str, type[ScatteredCodec]] = {"quantise": Quantise}
GATHERED: Mapping[str, type[GatheredCodec]] = {
    "ternary": Ternary,
    "dct": Dct,
    "select": Select,
    "top_k": TopK,
    "random_k": RandomK,
}
REDUCED: Mapping[str, type[ReducedCodec]] = {"low_rank": LowRank, "sketch": CountSketch, NONE: Uncompressed}
CODECS: Mapping[str, type[Codec]] = {**SCATTERED, **GATHERED, **REDUCED}
"""Codecs by the names of ``plans/synchronisation/compression.py``; ``lsh`` encodes tokens and is elsewhere."""
