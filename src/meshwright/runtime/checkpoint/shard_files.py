"""The state that a rank holds between steps, as tensors of a safetensors file.

A *stretch* is a contiguous part of a parameter or of one of its moments, or a whole buffer: elements start … stop of
the flattened tensor of one tp rank. Buffers have no moments. A moment in fp16 or fp8 has a second entry, its scale. The
name of a stretch in a file is
``STATE/PARAMETER/CUT/START-STOP``. CUT is ``whole`` or the dim and range of the slice: by tp (``0:24-48``), by the
pipeline ranks for a vocabulary table spread over them, or by ep and etp for experts (``0:4-8,1:0-32``; with an expert
order ``0:9+2+5+0``). The file's metadata holds the shapes, whole and local, under ``PARAMETER/CUT``, so the files can
be put together again without the plan that wrote them. Each stretch is only in the file of its first owner. States of
exchanges between replicas are stretches too (``exchange_states.py``).
"""

from collections.abc import Iterator
from dataclasses import replace

from meshwright.program.rank_units.unit_layout import Tensor, UnitLayout
from meshwright.runtime.checkpoint.exchange_states import exchange_states
from meshwright.runtime.checkpoint.stored_stretch import Stretch
from meshwright.runtime.executor.rank import Rank
from meshwright.runtime.executor.rank_plan import layer_of
from meshwright.runtime.state.on_host.offloaded_unit import parameters_at
from meshwright.runtime.state.shard_owner import first_owner, is_second_copy
from meshwright.runtime.state.sharded_unit import Unit

PARAMETER, BUFFER = "parameter", "buffer"
COPY = "copy_of_"
"""Begins the state of a tied table that the head holds in another layout than the embedding."""
SCALE = "_scale"
"""Ends the state of a scale."""


def stretches(rank: Rank) -> Iterator[Stretch]:
    """Yield every parameter, moment and buffer stretch that a rank holds, and those of the base that steps change.

    States of exchanges follow, which must have been settled.
    """
    optimizer = rank.interpreter.states.optimizer
    for unit, here, parameter in parameter_stretches(rank):
        moments = list(optimizer.moments_at(unit, here))
        copy = COPY if parameter.state.startswith(COPY) else ""
        yield parameter
        for key, memory, scale in moments:
            yield replace(parameter, state=f"{copy}{key}", memory=memory, scale=scale)
        for key, _, scale in moments:
            if scale is not None:
                yield replace(parameter, state=f"{copy}{key}{SCALE}", memory=(scale,))
    for base, changed, of, here in rank.interpreter.states.changes.spans():
        owner = first_owner(rank.job.program, rank.place.rank, base.layout, changed, base.communicator.part)
        yield Stretch(PARAMETER, changed, of.start, owner, (base.elements[here],))
    yield from buffer_stretches(rank)
    yield from exchange_states(rank)


def parameter_stretches(rank: Rank) -> Iterator[tuple[Unit, slice, Stretch]]:
    """Yield every stretch of a trained parameter with its unit and its range of the unit's shard."""
    for unit in rank.plan.trained_units:
        tensors = {tensor.name: tensor for tensor in unit.layout.tensors}
        for name, of, here in unit.spans():
            owner = first_owner(
                rank.job.program, rank.place.rank, unit.layout, tensors[name], unit.communicator.part
            )
            copied = is_second_copy(rank.job.program, unit.communicator.part_index, tensors[name])
            state = f"{COPY if copied else ''}{PARAMETER}"
            yield unit, here, Stretch(state, tensors[name], of.start, owner, parameters_at(unit, here))


def buffer_stretches(rank: Rank) -> Iterator[Stretch]:
    """Yield every buffer as a stretch."""
    for name, buffer in rank.plan.buffers.items():
        tensor = Tensor(name, shape := tuple(buffer.shape), shape, (), False, False, trained=False)
        part = rank.plan.part_of_layer(layer_of(name))
        owner = first_owner(rank.job.program, rank.place.rank, UnitLayout((tensor,), 0, 1), tensor, part)
        yield Stretch(BUFFER, tensor, 0, owner, (buffer,))


def rank_file(rank: int) -> str:
    """Return the name of the file that a rank writes."""
    return f"rank-{rank:05d}.safetensors"
