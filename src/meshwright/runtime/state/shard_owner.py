"""Find the first of the ranks that hold a copy of a shard: it counts the shard in norms and writes it. Pure.

Copies of a shard lie on all replicas, those of a whole unit on the shard axes too; what tp does not cut lies on every
tp rank, for experts on every etp rank; a table of two stages lies on both ends of the pipeline, unless it is spread
over all of it; with several chains of stages a rank's parameters also lie on the pipeline ranks that mirror it. Ranks
of other islands have other ones, and copy nothing.
"""

from collections.abc import Sequence

from meshwright.model.named_tensors import TOKEN_TABLE
from meshwright.program.program import Program, table_changes_layout, table_ends, table_is_apart
from meshwright.program.program_parts import Part
from meshwright.program.rank_units.unit_layout import Tensor, UnitLayout
from meshwright.program.synchronisation.islands import on_both_meshes


def first_owner(
    program: Program,
    rank: int,
    layout: UnitLayout,
    tensor: Tensor,
    part: Part,
    apart: Sequence[str] | None = None,
) -> int:
    """Return the first rank that holds the same piece of a parameter of ``part`` as ``rank`` does.

    Ranks that differ along the axes ``apart`` hold other ones; those are the axes between islands if not given.
    """
    mesh = layout.mesh
    whole = mesh.shard if layout.parts == 1 else ()
    uncut = () if tensor.widths_cut else (mesh.width,)
    alone = on_both_meshes(program.loose if apart is None else apart)
    copies = tuple(axis for axis in (*mesh.replica, *whole, *uncut) if axis not in alone)
    first, ends = part.mesh_with(copies).group_of(rank, copies)[0], program.end_ranks
    stages = program.parts.pipeline_of(first)
    if program.chains > 1:
        here = program.parts.pipeline_rank(rank)
        return stages[min(next(ranks for ranks in program.mirrors if here in ranks))]
    tied = tensor.name == TOKEN_TABLE and table_is_apart(program) and not table_changes_layout(program)
    return stages[ends[0]] if tied and first == stages[ends[-1]] else first


def is_second_copy(program: Program, part: int, tensor: Tensor) -> bool:
    """Return true for the head's copy of a tied table that it holds in a layout of its own; the embedding's counts."""
    if tensor.name != TOKEN_TABLE or not table_changes_layout(program):
        return False
    return part != table_ends(program)[0][0]
