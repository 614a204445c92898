"""Find, for what a rank holds, the stretches of a checkpoint that have it, under the same plan or another one.

Under the plan that wrote it, a stretch lies under its own name in its owner's file. Under another plan its elements are
looked up in the whole tensor, wherever they lie:

* a parameter that islands of replicas hold differently comes from their anchor, a moment from the first of them;
* both copies of a tied table come from the embedding's;
* moments that were stored with a scale are opened first, and stored again with the scale of their new piece;
* of what exchanges between replicas keep, anchors and moments of the outer optimizer are read; the rest begins anew.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from meshwright.errors import Problem
from meshwright.runtime.checkpoint.copy_elements import Copy
from meshwright.runtime.checkpoint.exchange_states import ANCHOR, ENTRY, GRADIENT, STEPS
from meshwright.runtime.checkpoint.manifest import damage
from meshwright.runtime.checkpoint.shard_files import COPY, PARAMETER, SCALE, rank_file
from meshwright.runtime.checkpoint.shared_elements import Overlap, Region, overlap, runs_of
from meshwright.runtime.checkpoint.stored_index import DTYPES, StoredStretch
from meshwright.runtime.checkpoint.stored_stretch import Stretch
from meshwright.runtime.state.stored_states import SCALED, scale_of
from meshwright.runtime.synchronisation.outer.outer_rule import FIRST, SECOND


@dataclass
class Reading:
    """Copies to make, by stored stretch, and moments that get a new scale when all their values are there."""

    path: Path
    copies: dict[StoredStretch, list[Copy]] = field(default_factory=lambda: defaultdict(list))
    rescaled: dict[int, list[tuple[Stretch, torch.Tensor]]] = field(default_factory=lambda: defaultdict(list))
    problems: list[Problem] = field(default_factory=list)

    def refuse(self, file: str, rule: str) -> None:
        """Add a problem of a file."""
        self.problems.append(damage(self.path, file, rule))

    def add(
        self, stored: StoredStretch, memory: torch.Tensor, shared: Overlap, scale: torch.Tensor | None = None
    ) -> None:
        """Add the elements that a stored stretch and a part of memory share."""
        if shared.elements:
            self.copies[stored].append(Copy(memory, shared, scale))

    def store_rescaled(self) -> None:
        """Store moments with new scales; spans that share one are scaled together."""
        for parts in self.rescaled.values():
            (dtype,) = {stretch.memory[0].dtype for stretch, _ in parts}
            scale = scale_of((wide for _, wide in parts), dtype)
            for stretch, wide in parts:
                assert stretch.scale is not None
                stretch.scale.fill_(scale)
                stretch.set((wide / scale.to(wide)).to(dtype))


def exact_reading(path: Path, wanted: Iterable[Stretch], stored: Iterable[StoredStretch]) -> Reading:
    """Return how to read stretches under the plan that wrote them."""
    found, by_name = Reading(path), {(of.file, of.name): of for of in stored}
    for stretch in wanted:
        file = rank_file(stretch.owner)
        source, dtype = by_name.get((file, stretch.name)), stretch.memory[0].dtype
        if source is None:
            found.refuse(file, f"does not hold {stretch.name}")
        elif source.dtype != dtype:
            found.refuse(file, f"holds {stretch.name} as {DTYPES[source.dtype]}, not {DTYPES[dtype]}")
        else:
            for start, memory in _parts(stretch):
                found.add(source, memory, _everything(start, len(memory)))
    return found


class ReshardedReading:
    """The stretches that have what a rank needs under another plan.

    ``outer``: states of outer optimizers are read too, because the entries of ``synchronise`` are the same.
    """

    def __init__(self, path: Path, stored: Iterable[StoredStretch], *, outer: bool) -> None:
        self.found, self.outer = Reading(path), outer
        self._stored: dict[tuple[str, str], dict[str, StoredStretch]] = defaultdict(dict)
        for of in sorted(
            stored, key=lambda of: of.file
        ):  # of equal stretches, those of the first island count
            self._stored[of.state, of.tensor].setdefault(of.name, of)
        self._scales: dict[StoredStretch, torch.Tensor] = {}

    def add(self, stretch: Stretch) -> None:
        """Find the elements of a stretch, or say what is missing."""
        states = stored_states(stretch, outer=self.outer)
        candidates = next((of for state in states if (of := self._of(state, stretch.tensor.name))), [])
        apart = [of for of in candidates if of.region.whole_shape != stretch.tensor.whole_shape]
        if apart:
            shapes = [list(of.whole_shape) for of in (apart[0].region, stretch.tensor)]
            rule = "holds {} of a tensor of shape {}, and not {}".format(apart[0].name, *shapes)
            self.found.refuse(apart[0].file, rule)
            return
        needed, there = self._overlaps(stretch, candidates)
        new = not states or (not candidates and stretch.state.startswith(f"{ENTRY}."))
        if needed != there and not new:
            what = f"{states[0]}/{stretch.tensor.name}"
            self.found.refuse("", f"holds {there} of the {needed} elements of {what} that a rank needs")

    def _overlaps(self, stretch: Stretch, candidates: Sequence[StoredStretch]) -> tuple[int, int]:
        """Add what stored stretches have of one; return its elements, and how many of them were found."""
        parts, needed, there = list(_parts(stretch)), 0, 0
        if stretch.scale is not None and candidates:
            wide = torch.zeros(stretch.length, dtype=torch.float32, device=stretch.scale.device)
            self.found.rescaled[stretch.scale.data_ptr()].append((stretch, wide))
            parts = [(0, wide)]
        for start, memory in parts:
            t = stretch.tensor
            runs = runs_of(Region(t.whole_shape, t.shape, t.cuts, stretch.start + start, len(memory)))
            needed += runs.elements
            for of in candidates:
                shared = overlap(runs, runs_of(of.region))
                there += shared.elements
                self.found.add(of, memory, shared, self._scale_of(of))
        return needed, there

    def _scale_of(self, stored: StoredStretch) -> torch.Tensor | None:
        """Return the memory that the scale of a stored stretch will be read into; None if it has none."""
        if stored.dtype not in SCALED:
            return None
        if stored not in self._scales:
            region = stored.region
            of = self._of(stored.state + SCALE, stored.tensor)
            scale = [s for s in of if (s.region.cuts, s.region.start) == (region.cuts, region.start)]
            self._scales[stored] = torch.ones(1)
            if scale:
                self.found.add(scale[0], self._scales[stored], _everything(0, 1))
            else:
                self.found.refuse(stored.file, f"does not hold the scale of {stored.name}")
        return self._scales[stored]

    def _of(self, state: str, tensor: str) -> list[StoredStretch]:
        return list(self._stored.get((state, tensor), {}).values())


def stored_states(stretch: Stretch, *, outer: bool) -> tuple[str, ...]:
    """Return the stored states to read a stretch from, the best first; none for one that starts from zero."""
    of = stretch.state.removeprefix(COPY)
    if of in (PARAMETER, ANCHOR) or (of.startswith(f"{ENTRY}.") and of.endswith(f".{ANCHOR}")):
        return ANCHOR, PARAMETER
    if of.endswith(SCALE) or of.startswith(f"{GRADIENT}."):
        return ()
    if of.startswith(f"{ENTRY}."):
        kept = outer and (of.endswith((f".{FIRST}", f".{SECOND}")) or stretch.tensor.name == STEPS)
        return (of,) if kept else ()
    return (of,)


def _parts(stretch: Stretch) -> Iterator[tuple[int, torch.Tensor]]:
    """Yield the parts of a stretch's memory, each with its first element."""
    start = 0
    for memory in stretch.memory:
        yield start, memory
        start += len(memory)


def _everything(start: int, length: int) -> Overlap:
    here, there, lengths = (np.asarray([value], np.int64) for value in (0, start, length))
    return Overlap(here, there, lengths)
