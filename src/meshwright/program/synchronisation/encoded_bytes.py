"""Bytes of a stretch in the encoding of a codec, exactly.

A value takes 4 bytes, or those of ``cast``, also in runs that compute in fp64; k are the elements of a stretch.

==============  ====================================================================================================
codec           bytes
==============  ====================================================================================================
``quantise``    per bucket the codes, ⌈k·bits/8⌉, and a smallest and largest value (int8, int4) or a largest magnitude
``ternary``     ⌈k/4⌉ and a largest magnitude
``low_rank``    count·r·(rows + columns) values (``low_rank_ranks.py``)
``dct``         of each chunk ``keep`` values with their indices in a chunk
``select``      ⌈keep·k⌉ values; both sides compute the places
``top_k``       ⌈s·k⌉ values, at least one, with their indices in the stretch
``random_k``    ⌈s·k⌉ values, at least one; both sides compute the places
``sketch``      rows·⌈width·k⌉ values
none            k values
==============  ====================================================================================================

Stretches outside ``layers``, and what ``low_rank`` cannot factor, are sent as they are: 4 bytes for each element.
"""

from collections.abc import Callable, Mapping, Sequence

from meshwright.plans.synchronisation.compression import Compression
from meshwright.program.synchronisation.kept_counts import chunk_counts, index_bytes, kept_of, share_of
from meshwright.program.synchronisation.low_rank_ranks import factor_elements, low_rank_ranks
from meshwright.program.synchronisation.quantised_formats import QUANTISED_FORMATS, SCALE_BYTES
from meshwright.program.synchronisation.stretch import Stretch

VALUE_BYTES = 4
CAST_BYTES: Mapping[str | None, int] = {None: VALUE_BYTES, "fp32": 4, "bf16": 2, "fp16": 2}
NONE = "none"
"""The codec of an entry that compresses nothing, or only casts."""

Ranks = Sequence[int | None]


def codec_name(compression: Compression | None) -> str:
    """Return the codec of a legal entry, ``none`` if it has none."""
    return compression.codec if compression and compression.written else NONE


def value_bytes(compression: Compression | None) -> int:
    """Return the bytes of a value that the codec keeps."""
    return CAST_BYTES[compression.cast if compression else None]


def bucket_elements(compression: Compression, elements: int) -> int:
    """Return the elements that share a scale: those of ``bucket``, or of the whole stretch."""
    return min(elements, int(compression.bucket)) if compression.bucket else elements


def _quantise(compression: Compression, elements: int) -> int:
    quantised = QUANTISED_FORMATS[str(compression.quantise)]
    bucket = bucket_elements(compression, elements)
    whole, rest = divmod(elements, bucket)
    return whole * quantised.bucket_bytes(bucket) + (quantised.bucket_bytes(rest) if rest else 0)


def _ternary(compression: Compression, elements: int) -> int:
    return -(-elements // 4) + SCALE_BYTES


def _dct(compression: Compression, elements: int) -> int:
    dct = compression.dct
    assert dct is not None
    chunk = int(dct.chunk)
    _, _, kept = chunk_counts(elements, chunk, int(dct.keep))
    return kept * (value_bytes(compression) + index_bytes(chunk))


def _select(compression: Compression, elements: int) -> int:
    assert compression.select is not None
    return share_of(compression.select.keep, elements) * value_bytes(compression)


def _top_k(compression: Compression, elements: int) -> int:
    assert compression.top_k is not None
    return kept_of(compression.top_k, elements) * (value_bytes(compression) + index_bytes(elements))


def _random_k(compression: Compression, elements: int) -> int:
    assert compression.random_k is not None
    return kept_of(compression.random_k, elements) * value_bytes(compression)


def _sketch(compression: Compression, elements: int) -> int:
    sketch = compression.sketch
    assert sketch is not None
    return int(sketch.rows) * share_of(sketch.width, elements) * value_bytes(compression)


CODEC_BYTES: Mapping[str, Callable[[Compression, int], int]] = {
    "quantise": _quantise,
    "ternary": _ternary,
    "dct": _dct,
    "select": _select,
    "top_k": _top_k,
    "random_k": _random_k,
    "sketch": _sketch,
}
"""Bytes by codec and elements; those of ``low_rank`` follow from its ranks, those of ``lsh`` from tokens."""


def codec_ranks(compression: Compression | None, stretches: Sequence[Stretch]) -> Ranks:
    """Return the ranks of the stretches of one exchange; None where nothing is factored."""
    if codec_name(compression) != "low_rank":
        return (None,) * len(stretches)
    assert compression is not None
    return low_rank_ranks(compression, stretches)


def is_encoded(compression: Compression | None, stretch: Stretch, rank: int | None) -> bool:
    """Return true if the codec encodes a stretch; others are sent as they are."""
    if not stretch.elements or compression is None:
        return False
    layers = compression.layer_range
    if layers is not None and stretch.layer not in layers:
        return False
    return codec_name(compression) != "low_rank" or rank is not None


def stretch_bytes(compression: Compression | None, stretch: Stretch, rank: int | None) -> int:
    """Return the encoded bytes of a stretch whose ``rank`` is known (``codec_ranks``)."""
    if compression is None or not is_encoded(compression, stretch, rank):
        return stretch.elements * VALUE_BYTES
    name = codec_name(compression)
    if name == NONE:
        return stretch.elements * value_bytes(compression)
    if name == "low_rank":
        assert stretch.matrices is not None
        return factor_elements(rank, stretch.matrices) * value_bytes(compression)
    return CODEC_BYTES[name](compression, stretch.elements)


def encoded_bytes(compression: Compression | None, stretch: Stretch) -> int:
    """Return the encoded bytes of a stretch that is exchanged alone."""
    return exchange_bytes(compression, (stretch,))


def exchange_bytes(compression: Compression | None, stretches: Sequence[Stretch]) -> int:
    """Return the encoded bytes of the stretches of one exchange, for which a budget chooses ranks together."""
    ranks = codec_ranks(compression, stretches)
    return sum(stretch_bytes(compression, one, rank) for one, rank in zip(stretches, ranks, strict=True))
