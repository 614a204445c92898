"""Legs of one exchange: the collectives that carry the messages of a group, with logical bytes.

=============  =====================================================================================================
transport      legs, for messages of E bytes of each of n ranks
=============  =====================================================================================================
``scattered``  all-to-all of E to the ranks that sum, all-gather of the E encoded bytes of the sums
``gathered``   all-gather of all n·E
``reduced``    all-reduce of E; with ``low_rank`` one of the left factors, then one of the right factors
=============  =====================================================================================================

Rules that combine rows (``plans/synchronisation/combination.py``) gather them: one all-gather of all n·E, with any
codec whose messages are decoded one by one, and of stretches that are sent as they are.

Stretches that are sent as they are (``encoded_bytes.py``) travel in an all-reduce: the first one of a ``reduced``
codec, or one behind the codec's legs. Logical bytes are those of ``program/pass_items.py``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from meshwright.plans.synchronisation.compression import Compression
from meshwright.program.pass_items import CollectiveKind
from meshwright.program.synchronisation.encoded_bytes import (
    NONE,
    VALUE_BYTES,
    codec_name,
    codec_ranks,
    exchange_bytes,
    is_encoded,
    stretch_bytes,
    value_bytes,
)
from meshwright.program.synchronisation.stretch import Stretch

Transport = Literal["scattered", "gathered", "reduced"]
TRANSPORTS: Mapping[str, Transport] = {
    "quantise": "scattered",
    "ternary": "gathered",
    "low_rank": "reduced",
    "dct": "gathered",
    "select": "gathered",
    "top_k": "gathered",
    "random_k": "gathered",
    "sketch": "reduced",
    NONE: "reduced",
}
"""How the messages of each codec are summed."""


@dataclass(frozen=True, slots=True)
class ExchangeLeg:
    """One collective of an exchange."""

    kind: CollectiveKind
    logical_bytes: int


@dataclass(frozen=True, slots=True)
class SplitStretches:
    """Numbers of the stretches of an exchange: encoded by a codec, or sent as they are.

    Empty stretches are in neither.
    """

    encoded: tuple[int, ...]
    whole: tuple[int, ...]


def split_stretches(compression: Compression | None, stretches: Sequence[Stretch]) -> SplitStretches:
    """Return the numbers of stretches by their treatment: encoded or sent as they are."""
    ranks = codec_ranks(compression, stretches)
    encoded = [is_encoded(compression, one, rank) for one, rank in zip(stretches, ranks, strict=True)]
    filled = [number for number, one in enumerate(stretches) if one.elements]
    return SplitStretches(
        tuple(number for number in filled if encoded[number]),
        tuple(number for number in filled if not encoded[number]),
    )


def exchange_legs(
    compression: Compression | None, stretches: Sequence[Stretch], ranks: int
) -> tuple[ExchangeLeg, ...]:
    """Return the legs of one exchange among ``ranks``, in order."""
    split = split_stretches(compression, stretches)
    factors = codec_ranks(compression, stretches)
    message = sum(stretch_bytes(compression, stretches[one], factors[one]) for one in split.encoded)
    whole = sum(stretches[one].elements for one in split.whole) * VALUE_BYTES
    alone = (ExchangeLeg("all-reduce", whole),) if whole else ()
    if not message:
        return alone
    transport = TRANSPORTS[codec_name(compression)]
    if transport == "scattered":
        return (ExchangeLeg("all-to-all", message), ExchangeLeg("all-gather", message), *alone)
    if transport == "gathered":
        return (ExchangeLeg("all-gather", ranks * message), *alone)
    right = _right_factor_bytes(compression, [(stretches[one], factors[one]) for one in split.encoded])
    legs = (ExchangeLeg("all-reduce", message - right + whole), ExchangeLeg("all-reduce", right))
    return tuple(leg for leg in legs if leg.logical_bytes)


def row_leg(compression: Compression | None, stretches: Sequence[Stretch], ranks: int) -> ExchangeLeg:
    """Return the leg that brings the message of every rank to all, for rules that need each replica's gradient."""
    return ExchangeLeg("all-gather", ranks * exchange_bytes(compression, stretches))


def _right_factor_bytes(compression: Compression | None, stretches: list[tuple[Stretch, int | None]]) -> int:
    """Return the bytes of the second round: right factors, columns × rank."""
    if codec_name(compression) != "low_rank":
        return 0
    columns = sum(one.matrices[0] * one.matrices[2] * (rank or 0) for one, rank in stretches if one.matrices)
    return columns * value_bytes(compression)
