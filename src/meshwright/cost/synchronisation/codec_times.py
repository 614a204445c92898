"""Seconds in which a rank encodes and decodes an exchange, and applies its result, on the compute stream.

Memory is moved in passes over values of 4 bytes, at the rate of an optimizer step. ``PASSES`` has their number for each
codec, over the stretch that is encoded and over each message that is decoded and added to the sum:

==============  =====================================================  ============================================
codec           encoding                                               decoding of a message
==============  =====================================================  ============================================
``quantise``    smallest and largest value; value, code                code, sum read and written
``ternary``     largest magnitude; draw, value, code                   code, sum read and written
``low_rank``    both products read the values; the sum is written      –
``dct``         momentum, values, coefficients, selection              kept values and indices, sum
``select``      momentum and values; places of ``random``              kept values, sum; places of ``random``
``top_k``       selection by radix; values, indices                    kept values and indices, sum
``random_k``    places; values                                         kept values, sum; places
``sketch``      for each row places, signs, counters                   for each row places and signs; sorted rows
==============  =====================================================  ============================================

Random places are a permutation, a sort of keys: ``SORT`` passes. Matrix products of ``low_rank`` and ``dct`` are in
fp32, ``PRODUCT_SLOWDOWN`` times slower than in 16 bit; the Householder QR of an m × r factor has 4·m·r² FLOPs and two
launches a column. All numbers here are assumed, since no measured data has these kernels. ``lsh`` is priced with the
passes of a model, for its tokens.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from meshwright.cost.operators.kernel_and_collective_times import HardwareTimes
from meshwright.cost.pipeline_time.host_state_copies import host_seconds
from meshwright.cost.pipeline_time.offload_copies import copy_seconds
from meshwright.plans.synchronisation.combination import OF_WHOLE_GRADIENTS
from meshwright.plans.synchronisation.compression import Compression
from meshwright.plans.synchronisation.synchronisation import Synchronisation
from meshwright.program.synchronisation.encoded_bytes import codec_name, codec_ranks, is_encoded
from meshwright.program.synchronisation.exchange_legs import TRANSPORTS
from meshwright.program.synchronisation.quantised_formats import QUANTISED_FORMATS
from meshwright.program.synchronisation.stretch import Stretch

VALUE = 4
"""Bytes of a value."""
SORT = 16.0
"""Passes of a permutation: four of a radix sort, which read and write keys of 8 bytes."""
RESIDUAL = 4.0
"""Passes of error feedback: values and residual are read, what was not sent is written, and the residual cleared."""
PRODUCT_SLOWDOWN = 16.0
"""Peak of products in 16 bit over that in fp32 without tensor cores: A100 312 and 19.5 TFLOP/s, H100 989 and 67."""
TRANSFORMS = 3
"""Discrete cosine transforms of an exchange: forward, back for the momentum, and back for the sum."""
UPDATE = {None: 6.0, "sgd": 6.0, "momentum": 8.0, "nesterov": 8.0, "adam": 10.0}
"""Passes of an exchange of parameters by its outer optimizer: Δ, anchor with its moments, merging."""
HOST_COPIES = 3
"""Copies between device and host of an exchange whose anchor is on the host."""
MOMENT_UPDATE = 4.0
"""Passes of an exchange of moments: values, mean and merging."""


@dataclass(frozen=True, slots=True)
class CodecPasses:
    """Passes over a stretch to ``encode`` it, and to ``decode`` one message and add it to a sum."""

    encode: float
    decode: float


def _quantise(said: Compression) -> CodecPasses:
    code = QUANTISED_FORMATS[str(said.quantise)].bits / (8 * VALUE)
    return CodecPasses(2 + code, 2 + code)


def _ternary(said: Compression) -> CodecPasses:
    clips = said.ternary is not None and said.ternary.clip is not None
    return CodecPasses(3 + 1 / 16 + clips, 2 + 1 / 16)


def _dct(said: Compression) -> CodecPasses:
    assert said.dct is not None
    return CodecPasses(8, 4 * min(1.0, float(said.dct.keep) / float(said.dct.chunk)))


def _select(said: Compression) -> CodecPasses:
    assert said.select is not None
    places = SORT if said.select.pattern == "random" else 0.0
    return CodecPasses(4 + places, places + 3 * float(said.select.keep))


def _sketch(said: Compression) -> CodecPasses:
    rows = float(said.sketch.rows if said.sketch else 1)
    return CodecPasses(rows * (SORT + 3), rows * (SORT + 3))


PASSES: Mapping[str, Callable[[Compression], CodecPasses]] = {
    "quantise": _quantise,
    "ternary": _ternary,
    "low_rank": lambda said: CodecPasses(3, 0),
    "dct": _dct,
    "select": _select,
    "top_k": lambda said: CodecPasses(6, 4 * float(said.top_k or 0)),
    "random_k": lambda said: CodecPasses(SORT + 2, SORT + 3 * float(said.random_k or 0)),
    "sketch": _sketch,
}
"""Passes by codec; one that is missing computes nothing between passes of a model."""


def exchange_codec_seconds(
    said: Compression | None, stretches: Sequence[Stretch], ranks: int, forms: HardwareTimes
) -> float:
    """Return the seconds to encode stretches, add up those of ``ranks``, and decode the sum."""
    encoded = encoded_stretches(said, stretches)
    if said is None or not encoded:
        return 0.0
    name, elements = codec_name(said), sum(one.elements for one, _ in encoded)
    passes = PASSES[name](said)
    if TRANSPORTS[name] == "scattered":  # each rank adds up its share, and encodes the sum again
        moved = passes.encode * (1 + 1 / ranks) + 2 * passes.decode
    else:
        moved = passes.encode + passes.decode * (ranks if TRANSPORTS[name] == "gathered" else 1)
    moved += RESIDUAL if said.error_feedback and not said.momentum else 0
    return pass_seconds(moved, elements, forms) + _product_seconds(said, encoded, forms)


def row_seconds(
    entry: Synchronisation, stretches: Sequence[Stretch], ranks: int, forms: HardwareTimes
) -> float:
    """Return the seconds to encode stretches, decode those of all ranks, and combine these rows by a rule.

    A rule by element reads all rows, orders each element's values on the chip, and writes the result. Rules of whole
    gradients read the rows for their products, in fp32, and again for the result.
    """
    elements = sum(one.elements for one in stretches)
    passes = ranks + 1 if entry.combination not in OF_WHOLE_GRADIENTS else 2 * ranks + 1
    seconds = pass_seconds(passes, elements, forms)
    if entry.combination in OF_WHOLE_GRADIENTS:
        seconds += 2.0 * ranks**2 * elements / _product_rate(forms)
    said, encoded = entry.compress, encoded_stretches(entry.compress, stretches)
    if said is None or not encoded:
        return seconds
    of_codec, size = PASSES[codec_name(said)](said), sum(one.elements for one, _ in encoded)
    moved = of_codec.encode + ranks * of_codec.decode
    moved += RESIDUAL if said.error_feedback and not said.momentum else 0
    return seconds + pass_seconds(moved, size, forms) + _product_seconds(said, encoded, forms)


def gather_codec_seconds(
    said: Compression, stretches: Sequence[Stretch], ranks: int, forms: HardwareTimes
) -> float:
    """Return the seconds to encode one of ``ranks`` shards of stretches, and to decode all of them."""
    elements = sum(one.elements for one, _ in encoded_stretches(said, stretches))
    passes = PASSES[codec_name(said)](said)
    return pass_seconds(passes.encode / ranks + passes.decode, elements, forms)


def scatter_codec_seconds(said: Compression, stretches: Sequence[Stretch], forms: HardwareTimes) -> float:
    """Return the seconds to encode the shards of all ranks, and to decode and add up as many of the own one."""
    encoded = encoded_stretches(said, stretches)
    passes = PASSES[codec_name(said)](said)
    moved = passes.encode + passes.decode + (RESIDUAL if said.error_feedback and not said.momentum else 0)
    elements = sum(one.elements for one, _ in encoded)
    return pass_seconds(moved, elements, forms) + _product_seconds(said, encoded, forms)


def update_seconds(entry: Synchronisation, state: str, elements: int, forms: HardwareTimes) -> float:
    """Return the seconds of an exchange between steps besides its codec: Δ, anchor, outer optimizer, merging.

    An anchor on the host is copied to the device for Δ and for merging, the mean back to it, and moved in host memory;
    all on the device if the cluster does not say its hosts' rates.
    """
    outer = entry.outer_in_full
    passes = UPDATE[outer.name if outer else None] if state == "parameter" else MOMENT_UPDATE
    if entry.keep == "host" and forms.host_bytes_per_s and forms.host_memory_bytes_per_s:
        moved = VALUE * elements
        return float(HOST_COPIES * copy_seconds(moved, forms) + host_seconds(passes * moved, forms))
    return pass_seconds(passes, elements, forms)


def encoded_stretches(
    said: Compression | None, stretches: Sequence[Stretch]
) -> list[tuple[Stretch, int | None]]:
    """Return the stretches that a codec computes for, with their ranks in ``low_rank``."""
    if said is None or codec_name(said) not in PASSES:
        return []
    ranks = codec_ranks(said, stretches)
    return [(one, rank) for one, rank in zip(stretches, ranks, strict=True) if is_encoded(said, one, rank)]


def pass_seconds(passes: float, elements: float, forms: HardwareTimes) -> float:
    """Return the seconds of passes over values."""
    return float(forms.pass_(passes * VALUE * elements, "optimizer_efficiency"))


def _product_seconds(
    said: Compression, encoded: Sequence[tuple[Stretch, int | None]], forms: HardwareTimes
) -> float:
    """Return the seconds of matrix products and QR."""
    launch_s, flops, launches = forms.kernels.gemm_launch_s, 0.0, 0
    for one, rank in encoded:
        if said.dct is not None:
            flops += TRANSFORMS * 2.0 * float(said.dct.chunk) * one.elements
            launches += TRANSFORMS
        elif rank is not None and one.matrices is not None:
            count, rows, _ = one.matrices
            flops += 3 * 2.0 * rank * one.elements + count * 4.0 * rows * rank**2
            launches += 3 + 2 * rank
    return launches * launch_s + flops / _product_rate(forms)


def _product_rate(forms: HardwareTimes) -> float:
    """Return the FLOPs per second of matrix products in fp32."""
    return float(forms.kernels.gemm_efficiency * forms.peak_16bit_flops / PRODUCT_SLOWDOWN)
