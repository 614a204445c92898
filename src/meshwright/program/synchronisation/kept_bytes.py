"""Bytes that ``synchronise`` keeps on a rank during a step, by kind and home. Pure.

Every value takes 4 bytes, with E elements of what a rank exchanges:

==============  ====================================================================================================
kind            bytes
==============  ====================================================================================================
``anchor``      4·E of each entry of parameters between islands
``outer``       4·E for each moment of its outer optimizer
``pending``     4·E of the results of fragments that are in flight, with ``own: fresh`` of the own part too
``residual``    4·E of the stretches that a codec with error feedback encodes
``momentum``    4·E of those that ``dct`` and ``select`` encode
``factor``      4·count·columns·r of the right factors of ``low_rank``
``row``         4·n·E of the replicas' gradients, where a rule combines those of n
==============  ====================================================================================================

Anchors and outer moments of an entry with ``keep: host`` are on the host. Δ is formed in the place of gradients, and
what is in flight only between two steps is not counted.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from meshwright.plans.synchronisation.compression import Compression
from meshwright.plans.synchronisation.synchronisation import Synchronisation, exchanged_between_steps
from meshwright.program.program import Program
from meshwright.program.rank_units.rank_units import RankUnits, UnitPlan
from meshwright.program.synchronisation.encoded_bytes import codec_name, codec_ranks, is_encoded
from meshwright.program.synchronisation.exact_entries import entries_by_axis
from meshwright.program.synchronisation.rank_exchanges import RankExchanges
from meshwright.program.synchronisation.stretch import Stretch
from meshwright.program.synchronisation.unit_legs import unit_shard, unit_shards

VALUE = 4
ON_HOST = ("anchor", "outer")
"""Kinds that ``keep: host`` puts there."""


@dataclass(frozen=True, slots=True)
class KeptBytes:
    """Bytes by kind, on the device and on the host."""

    on_device: Mapping[str, int]
    on_host: Mapping[str, int]

    @property
    def device(self) -> int:
        """All bytes on the device."""
        return sum(self.on_device.values())

    @property
    def host(self) -> int:
        """All bytes on the host."""
        return sum(self.on_host.values())


def kept_bytes_of(program: Program, pipeline_rank: int) -> KeptBytes:
    """Return what the first rank of a pipeline rank keeps."""
    device, host = Counter[str](), Counter[str]()
    if not program.synchronise:
        return KeptBytes(device, host)
    rank = program.parts.members(pipeline_rank)[0]
    for found in _inside_steps(program, rank):
        device.update(found)
    exchanges = RankExchanges(program, rank)
    for number in exchanged_between_steps(program.synchronise, program.loose):
        for kind, size in _of_entry(exchanges, number).items():
            kept = program.synchronise[number].keep == "host" and kind in ON_HOST
            (host if kept else device)[kind] += size
    return KeptBytes(device, host)


def _of_entry(exchanges: RankExchanges, number: int) -> Counter[str]:
    """Return the bytes by kind of an entry between islands."""
    said, found, sizes = exchanges.program.synchronise[number], Counter[str](), list[int]()
    outer = said.outer_in_full
    for fragment in range(int(said.fragment_rule.count)):
        messages = exchanges.messages(number, fragment)
        sizes.append(sum(message.elements for message in messages))
        for message in messages:
            found.update(codec_kept_bytes(said.compress, message.stretches))
            if message.state == "parameter":
                found["anchor"] += VALUE * message.elements
                found["outer"] += VALUE * message.elements * len(outer.moments if outer else ())
    found["pending"] += VALUE * pending_elements(said, sizes) * (2 if said.own == "fresh" else 1)
    return found


def pending_elements(entry: Synchronisation, sizes: Sequence[int]) -> int:
    """Return the most elements that are in flight during a step; ``sizes`` are those of fragments.

    An exchange that begins behind step b is in flight in the steps b + 1 … b + delay. Of a rule, with its base.
    """
    period, delay = entry.period, int(entry.delay)
    begins = [fragment * period // len(sizes) for fragment in range(len(sizes))]

    def in_flight(step: int) -> int:
        since = ((step - 1 - begin) % period for begin in begins)
        return sum(size for size, ago in zip(sizes, since, strict=True) if ago < delay)

    return max(in_flight(begin + 1) for begin in begins)


def codec_kept_bytes(said: Compression | None, stretches: Sequence[Stretch]) -> Counter[str]:
    """Return the bytes by kind of a codec's residuals, momenta and factors."""
    found = Counter[str]()
    if said is None:
        return found
    ranks = codec_ranks(said, stretches)
    encoded = [(one, rank) for one, rank in zip(stretches, ranks, strict=True) if is_encoded(said, one, rank)]
    elements = VALUE * sum(one.elements for one, _ in encoded)
    if said.momentum is not None:
        found["momentum"] += elements
    elif said.error_feedback:
        found["residual"] += elements
    if codec_name(said) == "low_rank":
        columns = (one.matrices[0] * one.matrices[2] * (rank or 0) for one, rank in encoded if one.matrices)
        found["factor"] += VALUE * sum(columns)
    return found


def _inside_steps(program: Program, rank: int) -> Iterator[Counter[str]]:
    """Yield the bytes by kind of codecs of gradients and of gathered parameters, unit by unit."""
    for unit in RankUnits(program, rank).distinct():
        if not unit.trained:
            continue
        for state in ("gradient", "parameter"):
            for axis, entry in entries_by_axis(program.synchronise, program.loose, state).items():
                said = program.synchronise[entry].compress
                if axis in unit.layout.mesh.shard and unit.layout.parts > 1:
                    yield codec_kept_bytes(said, _flat(unit_shards(unit)))
                elif state == "gradient" and axis in unit.layout.mesh.axes and _several(program, axis, unit):
                    own = unit_shard(program, rank, unit)
                    yield codec_kept_bytes(said, own)
                    if program.synchronise[entry].takes_rows:
                        rows = program.group_size((axis,), unit.part)
                        yield Counter(row=VALUE * rows * sum(one.elements for one in own))


def _several(program: Program, axis: str, unit: UnitPlan) -> bool:
    return program.group_size((axis,), unit.part) > 1


def _flat(shards: Iterable[Iterable[Stretch]]) -> list[Stretch]:
    return [stretch for shard in shards for stretch in shard]
