"""Bytes that ``synchronise`` keeps on a rank between steps, by home: anchors, momenta, residuals, factors. Pure.

Every value takes 4 bytes. An exchange of parameters keeps an anchor and the moments of its outer optimizer; with a
delay its result, and with ``own: fresh`` the rank's own part of it. Codecs keep residuals, momenta or low-rank factors.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from meshwright.plans.synchronisation.compression import Compression
from meshwright.plans.synchronisation.synchronisation import exchanged_between_steps
from meshwright.program.program import Program
from meshwright.program.rank_units.rank_units import RankUnits
from meshwright.program.synchronisation.encoded_bytes import codec_name, codec_ranks, is_encoded
from meshwright.program.synchronisation.exact_entries import entries_by_axis
from meshwright.program.synchronisation.rank_exchanges import RankExchanges
from meshwright.program.synchronisation.stretch import Stretch
from meshwright.program.synchronisation.unit_legs import unit_shard, unit_shards

VALUE = 4


@dataclass(frozen=True, slots=True)
class KeptBytes:
    """Bytes on the device, and on the host of entries with ``keep: host``."""

    device: int = 0
    host: int = 0


def kept_bytes_of(program: Program, pipeline_rank: int) -> KeptBytes:
    """Return what the first rank of a pipeline rank keeps."""
    if not program.synchronise:
        return KeptBytes()
    rank = program.parts.members(pipeline_rank)[0]
    device, host = _inside_steps(program, rank), 0
    exchanges = RankExchanges(program, rank)
    for number in exchanged_between_steps(program.synchronise, program.loose):
        said = program.synchronise[number]
        for fragment in range(int(said.fragment_rule.count)):
            for message in exchanges.messages(number, fragment):
                outer = said.outer_in_full
                anchors = (1 + len(outer.moments if outer else ())) if message.state == "parameter" else 0
                pending = (int(said.delay) > 0) + (said.own == "fresh")
                at_home = VALUE * anchors * message.elements
                host += at_home if said.keep == "host" else 0
                device += 0 if said.keep == "host" else at_home
                device += VALUE * pending * message.elements + codec_kept_bytes(
                    said.compress, message.stretches
                )
    return KeptBytes(device, host)


def codec_kept_bytes(said: Compression | None, stretches: Sequence[Stretch]) -> int:
    """Return the bytes of a codec's residuals, momenta and factors."""
    if said is None:
        return 0
    ranks = codec_ranks(said, stretches)
    encoded = [(one, rank) for one, rank in zip(stretches, ranks, strict=True) if is_encoded(said, one, rank)]
    kept = sum(one.elements for one, _ in encoded) if said.error_feedback and not said.momentum else 0
    kept += sum(one.elements for one, _ in encoded) if said.momentum else 0
    if codec_name(said) == "low_rank":
        kept += sum(one.matrices[0] * one.matrices[2] * (rank or 0) for one, rank in encoded if one.matrices)
    return VALUE * kept


def _inside_steps(program: Program, rank: int) -> int:
    """Return the bytes of codecs of gradients and of gathered parameters."""
    total = 0
    for unit in RankUnits(program, rank).distinct():
        if not unit.trained:
            continue
        for state in ("gradient", "parameter"):
            for axis, entry in entries_by_axis(program.synchronise, program.loose, state).items():
                said = program.synchronise[entry].compress
                if axis in unit.layout.mesh.shard and unit.layout.parts > 1:
                    total += codec_kept_bytes(said, _flat(unit_shards(unit)))
                elif state == "gradient" and axis in unit.layout.mesh.axes:
                    several = program.group_size((axis,), unit.part) > 1
                    total += codec_kept_bytes(said, unit_shard(program, rank, unit)) if several else 0
    return total


def _flat(shards: Iterable[Iterable[Stretch]]) -> list[Stretch]:
    return [stretch for shard in shards for stretch in shard]
