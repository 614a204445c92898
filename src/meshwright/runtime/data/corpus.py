"""All token ids of a run: the shards one after another, none of them held in memory."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from meshwright.errors import InputError, Problem
from meshwright.runtime.data.input_files import DataFile
from meshwright.runtime.data.token_shards import Ids, open_shard

SCAN_TOKENS = 2**22


@dataclass(frozen=True)
class Corpus:
    """Ids of all shards. ``names`` gives the source of each shard."""

    shards: tuple[Ids, ...]
    names: tuple[str, ...]
    starts: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        ends = accumulate((len(shard) for shard in self.shards), initial=0)
        object.__setattr__(self, "starts", np.array(list(ends), np.int64))

    @property
    def tokens(self) -> int:
        """Tokens of all shards."""
        return int(self.starts[-1])

    def read(self, start: int, stop: int) -> NDArray[np.int64]:
        """Return the ids from ``start`` up to ``stop``, across shard borders; fewer if the corpus ends before."""
        stop = min(stop, self.tokens)
        parts = []
        shard = int(np.searchsorted(self.starts, start, side="right")) - 1
        while start < stop:
            first = int(self.starts[shard])
            parts.append(self.shards[shard][start - first : stop - first])
            start, shard = int(self.starts[shard + 1]), shard + 1
        return np.concatenate(parts).astype(np.int64) if parts else np.empty(0, np.int64)

    def check_vocabulary(self, vocab: int) -> None:
        """Check that every id has a row in the embedding table.

        Raises InputError with the first bad id of each shard.
        """
        places = [_first_from(shard, vocab) for shard in self.shards]
        problems = [
            Problem(
                f"data: {name}",
                int(shard[place]),
                f"the id of token {place} must be below {vocab}, the size of the model's vocabulary",
                "take the model's own tokenizer, or a model with a larger vocabulary",
            )
            for shard, name, place in zip(self.shards, self.names, places, strict=True)
            if place is not None
        ]
        if problems:
            raise InputError(problems)


def open_corpus(files: Sequence[DataFile], names: Sequence[str]) -> Corpus:
    """Open token shards as one corpus, in their order. Raises InputError with all problems."""
    shards: list[Ids] = []
    problems: list[Problem] = []
    for file in files:
        try:
            shards.append(open_shard(file))
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)
    return Corpus(tuple(shards), tuple(names))


def _first_from(ids: Ids, vocab: int) -> int | None:
    """Return the position of the first id that is ``vocab`` or more; None if there is none."""
    if vocab > np.iinfo(ids.dtype).max:
        return None
    for start in range(0, len(ids), SCAN_TOKENS):
        beyond = ids[start : start + SCAN_TOKENS] >= vocab
        if beyond.any():
            return start + int(beyond.argmax())
    return None
