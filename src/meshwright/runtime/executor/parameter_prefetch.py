"""Fetch offloaded parameters from the host one block ahead of the pass that uses them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from meshwright.runtime.state.frozen_unit import FrozenUnit
from meshwright.runtime.state.on_host.offloaded_unit import OffloadedUnit
from meshwright.runtime.state.sharded_unit import Unit


class BlockOfUnit(NamedTuple):
    """A unit, and the index of one of its blocks."""

    unit: Unit | FrozenUnit
    block: int


@dataclass
class ParameterFetches:
    """The fetches of one pass: what each of its blocks needs, and what it uses."""

    needed: Sequence[Sequence[BlockOfUnit]]
    used: Sequence[Sequence[BlockOfUnit]]
    last: dict[tuple[int, int], int] = field(init=False)

    def __post_init__(self) -> None:
        self.last = {(id(of.unit), of.block): at for at, used in enumerate(self.used) for of in used}

    def before_gather(self, at: int) -> None:
        """End the fetches of shards that are gathered for a block, and start those of the next one."""
        self._ready(at, by_block=False)

    def before_block(self, at: int) -> None:
        """End the fetches of a block that this rank has alone, and start those of the next one."""
        self._ready(at, by_block=True)

    def after_block(self, at: int) -> None:
        """Drop what no later block of the pass uses."""
        for unit, block in self.used[at]:
            if isinstance(unit, OffloadedUnit) and unit.home.by_block and self.last[id(unit), block] == at:
                unit.home.drop(block)

    def _ready(self, at: int, *, by_block: bool) -> None:
        for unit, block in self._fetched(at, by_block):
            unit.home.ready(block)
        for unit, block in self._fetched(at + 1, by_block):
            if block not in unit.home.here:
                unit.home.fetch(block)

    def _fetched(self, at: int, by_block: bool) -> list[tuple[OffloadedUnit, int]]:
        return [
            (unit, block)
            for unit, block in (self.needed[at] if at < len(self.needed) else ())
            if isinstance(unit, OffloadedUnit) and unit.home.fetched and unit.home.by_block == by_block
        ]
