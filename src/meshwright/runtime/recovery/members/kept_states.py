"""Keep a rank's states over a change of ranks, pass them to members that lack them, and compare all copies."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TypeVar

import torch
import torch.distributed as dist

from meshwright.errors import RunError
from meshwright.runtime.checkpoint.exchange_states import ENTRY
from meshwright.runtime.checkpoint.pass_to_copies import pass_to_copies
from meshwright.runtime.checkpoint.shard_files import stretches
from meshwright.runtime.checkpoint.stored_stretch import Stretch
from meshwright.runtime.executor.rank import Rank
from meshwright.runtime.recovery.members.membership import places_of

MOST_NAMED = 3
LABELS = "labels"
"""The name of the numbers of labels since an exchange, by replica."""
T = TypeVar("T")


@dataclass(frozen=True)
class KeptStates:
    """The values of all stretches of a rank, as they were after ``step`` steps."""

    step: int
    values: Mapping[str, torch.Tensor]


def kept_states(rank: Rank, *, copies: bool = False) -> KeptStates:
    """Return a rank's states: its own memory, or ``copies`` that further steps do not change."""
    found = {of.name: of.values for of in stretches(rank)}
    if copies:
        found = {name: values.clone() for name, values in found.items()}
    return KeptStates(rank.interpreter.states.optimizer.step, found)


def in_flight(rank: Rank) -> bool:
    """Return whether results of exchanges between islands are still on their way to a rank."""
    fragments = rank.interpreter.states.synchroniser.fragments.values()
    return any(
        begun.mean is None for of in fragments for exchange in of.exchanges for begun in exchange.begun
    )


def restore_states(
    rank: Rank, kept: KeptStates | None, step: int, source: int, former: Sequence[int | None]
) -> None:
    """Give every rank the states after ``step`` steps; every rank calls it.

    A rank with ``kept`` states takes those, another one gets those of the rank ``source``. ``former`` are the numbers
    that replicas had before, None for new ones. Raises RunError on all ranks if states are missing or copies differ.
    """
    kept = None if kept is None else _with_labels(rank, kept, former)
    states, here = rank.interpreter.states, rank.place.rank
    states.synchroniser.expect(step)
    held = list(stretches(rank))
    missing = [] if kept is None else [of.name for of in held if not _fits(of, kept.values.get(of.name))]
    _refuse_missing(rank, missing)
    if kept is not None:
        for of in held:
            of.set(kept.values[of.name])
    pass_to_copies(rank, [replace(of, owner=source if kept is None else here) for of in held])
    states.optimizer.step = step
    states.renew()
    compare_copies(rank, held)


def _with_labels(rank: Rank, kept: KeptStates, former: Sequence[int | None]) -> KeptStates:
    """Return states whose counts of labels are by the replicas that there are now: new ones have none yet."""
    values = dict(kept.values)
    for of in stretches(rank):
        if of.tensor.name == LABELS and of.state.startswith(f"{ENTRY}."):
            prefix = of.name.rpartition("/")[0]
            counts = next(found for name, found in kept.values.items() if name.rpartition("/")[0] == prefix)
            now = torch.zeros_like(of.values).view(len(former), -1)
            before = counts.view(-1, now.shape[1])
            for replica, number in enumerate(former):
                if number is not None:
                    now[replica] = before[number]
            values[of.name] = now.view(-1)
    return replace(kept, values=values)


def compare_copies(rank: Rank, held: Sequence[Stretch]) -> None:
    """Raise RunError on all ranks if replicas differ in any state; islands have states of their own."""
    program = rank.job.program
    if program.loose:
        return
    digests = _from_all(rank, "hashes of states", _digest(held))
    by_position: dict[int, list[tuple[int, str]]] = {}
    for number, place in enumerate(places_of(program)):
        by_position.setdefault(place.position, []).append((number, digests[number]))
    unequal = [number for copies in by_position.values() for number in _other_than_first(copies)]
    if unequal:
        named = ", ".join(map(str, unequal))
        raise RunError(
            f"states of rank {named} differ from those of their first replica after a change of ranks"
        )


def _other_than_first(copies: Sequence[tuple[int, str]]) -> Iterator[int]:
    return (number for number, digest in copies if digest != copies[0][1])


def _digest(held: Sequence[Stretch]) -> str:
    """Return the SHA-256 of names and values."""
    found = sha256()
    for of in sorted(held, key=lambda one: one.name):
        found.update(of.name.encode())
        found.update(of.values.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def _fits(stretch: Stretch, values: torch.Tensor | None) -> bool:
    return values is not None and values.numel() == stretch.length


def _refuse_missing(rank: Rank, missing: Sequence[str]) -> None:
    """Raise RunError on all ranks if one lacks states that the new plan has."""
    everyone = sorted({name for names in _from_all(rank, "names of states", list(missing)) for name in names})
    if everyone:
        more = f" and {len(everyone) - MOST_NAMED} more" if len(everyone) > MOST_NAMED else ""
        named = ", ".join(everyone[:MOST_NAMED])
        raise RunError(
            f"no rank that is left has all of the states: the lost ones held the only copy of {named}{more}"
        )


def _from_all(rank: Rank, what: str, value: T) -> list[T]:
    ranks = rank.place.ranks
    everyone: list[T] = [value] * ranks
    with rank.communicator.naming(what, tuple(range(ranks))):
        dist.all_gather_object(everyone, value)
    return everyone
