"""Shrink a Program to a few local processes: one per pipeline rank, or a few more so that its groups are real.

Ranks of a class do the same, so one process stands for all ranks of a pipeline rank. Action lists, collectives and
times stay those of the whole plan; only the grid shrinks: a degree above 1 becomes 2 if there are processes for it, so
that its collectives run between two processes, and 1 otherwise, where a collective only takes its time. Axes between
islands come first. Messages shrink to one token, which carries a stamp.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from meshwright.errors import Problem, UnsupportedError
from meshwright.program.layouts.rank_mesh import RankGrid
from meshwright.program.program import Program
from meshwright.program.program_parts import Part
from meshwright.program.synchronisation.islands import EXPERT_AXES as OF_EXPERTS

MOST_PROCESSES = 16
PEER_AXES = ("tp", "dp_shard", "dp_replicate", "cp")
EXPERT_AXES = ("etp", "ep", "edp_shard", "edp_replicate")


def local_program(program: Program, processes: int) -> Program:
    """Return the Program for at most ``processes`` processes.

    Raises UnsupportedError if they are too few or too many.
    """
    check_processes(program, processes)
    of_a_class = processes // program.pipeline_ranks
    loose = program.loose
    return replace(
        program,
        reshards={},
        smaller_items={},
        parts=replace(
            program.parts,
            every=tuple(
                _local_part(part, program.pipeline_ranks, peer_degrees(part, of_a_class, loose), loose)
                for part in program.parts
            ),
        ),
    )


def _local_part(part: Part, pipeline_ranks: int, peers: Mapping[str, int], loose: Sequence[str]) -> Part:
    """Return a part on few processes, with messages of one token."""
    sizes = {axis: peers.get(axis, 1) for axis in part.grid.order} | {"pp": pipeline_ranks}
    shape = replace(
        part.shape,
        seq_len=int(part.shape.cp) * (int(part.shape.tp) if part.mode.sequence_parallel else 1),
        micro_batch=1,
        state_share=(),
    )
    return replace(
        part,
        batch_share=(),
        grid=RankGrid(sizes, part.grid.order),
        expert_grid=_expert_grid(part, pipeline_ranks, peers, loose),
        shape=shape,
    )


def check_processes(program: Program, processes: int) -> None:
    """Raise UnsupportedError if a Program cannot be emulated on that many processes."""
    fewest, problems = program.pipeline_ranks, []
    if not fewest <= processes <= MOST_PROCESSES:
        pipeline = _counted(fewest, "pipeline rank", "pipeline ranks")
        rule = f"there is one process for each of {pipeline}, and at most {MOST_PROCESSES}"
        nearest = min(max(processes, fewest), MOST_PROCESSES)
        hint = f"--ranks {nearest}" if fewest <= MOST_PROCESSES else f"layout.pp: {MOST_PROCESSES} or less"
        problems.append(Problem("ranks", processes, rule, hint))
    elif len(program.parts) > 1 and processes != fewest:
        rule = f"with several layouts one process stands for each of the {fewest} pipeline ranks"
        problems.append(Problem("ranks", processes, rule, f"--ranks {fewest}"))
    if problems:
        raise UnsupportedError(problems)


def peer_degrees(part: Part, of_a_class: int, loose: Sequence[str] = ()) -> dict[str, int]:
    """Return degree 2 for as many axes above 1 as ``of_a_class`` processes allow, and 1 for the others.

    ``loose`` axes come first.
    """
    degrees = dict.fromkeys(PEER_AXES, 1)
    for axis in dict.fromkeys((*loose, *PEER_AXES)):
        if part.grid.sizes[axis] > 1 and 2 * prod(degrees.values()) <= of_a_class:
            degrees[axis] = 2
    return degrees


def _expert_grid(part: Part, pipeline_ranks: int, peers: Mapping[str, int], loose: Sequence[str]) -> RankGrid:
    """Return the experts' mesh over the same processes: axes above 1 first, the rest as replicas.

    Over ``loose`` axes it is cut as the dense mesh is.
    """
    processes = prod(peers.values())
    sizes: dict[str, int] = dict.fromkeys(EXPERT_AXES, 1)
    sizes |= {OF_EXPERTS[axis]: peers[axis] for axis in loose}
    inside = [axis for axis in EXPERT_AXES if axis not in {OF_EXPERTS[axis] for axis in loose}]
    for axis in inside:
        if part.expert_grid.sizes[axis] > 1 and 2 * prod(sizes.values()) <= processes:
            sizes[axis] = 2
    if inside:
        sizes[inside[-1]] *= processes // prod(sizes.values())
    return RankGrid({**sizes, "pp": pipeline_ranks}, part.expert_grid.order)


def stands_for(program: Program, local: Program) -> str:
    """Return one sentence that says which ranks the processes stand for."""
    here, grid = local.parts[0].grid, program.parts[0].grid
    peers = _above_one({axis: here.sizes[axis] for axis in PEER_AXES})
    whole = _above_one({axis: grid.sizes[axis] for axis in grid.order})
    real = f"{peers} between real processes" if peers else "one process for each pipeline rank"
    processes = _counted(local.parts.ranks, "process", "processes")
    ranks = _counted(program.parts.ranks, "rank", "ranks")
    return f"{processes} for {ranks} ({whole or 'one device'}): {real}"


def _counted(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}"


def _above_one(degrees: Mapping[str, int]) -> str:
    return " ".join(f"{axis} {degree}" for axis, degree in degrees.items() if degree > 1)
