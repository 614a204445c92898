"""Pipelines of any small size, times and memory limit."""

from hypothesis import strategies as st

from meshwright.schedules.pipeline import Knobs, Pipeline, looped_placement, v_placement
from meshwright.schedules.solve import SolverInput, StageMemory
from meshwright.schedules.stage_times import StageTimes

TICKS = st.integers(0, 6)


def unit_pipeline(ranks, micro_batches, limit, chunks=1, placement=v_placement):
    """F, I and W take 1, messages nothing."""
    ones = (1,) * (ranks * chunks)
    return Pipeline(
        ranks=ranks,
        micro_batches=micro_batches,
        placement=placement(ranks, chunks),
        times=StageTimes(ones, ones, ones),
        knobs=Knobs(memory_limit=limit),
    )


@st.composite
def pipelines(draw, sizes):
    """P, M and V from ``sizes``; times of every stage; a limit of one micro-batch or more."""
    ranks, micro_batches, chunks = draw(st.sampled_from(sizes))
    stages = ranks * chunks
    of_stages, forward = st.tuples(*[TICKS] * stages), st.tuples(*[TICKS.filter(bool)] * stages)
    return Pipeline(
        ranks=ranks,
        micro_batches=micro_batches,
        placement=draw(st.sampled_from([v_placement, looped_placement]))(ranks, chunks),
        times=StageTimes(
            draw(forward),
            draw(of_stages),
            draw(of_stages),
            draw(st.integers(0, 3)),
            draw(st.sampled_from([0.0, 0.3, 0.5, 1.0])),
        ),
        knobs=Knobs(memory_limit=draw(st.sampled_from([2.0, 2.5, 3.0, 4.0, 6.0]))),
    )


@st.composite
def tasks(draw, sizes):
    """Stages that hold unequally much, more of it for W than until I too, and either goal.

    Every rank has room for a micro-batch in all its stages.
    """
    pipeline = draw(pipelines(sizes))
    parts = st.tuples(*[st.sampled_from([0.0, 0.2, 0.5, 0.7, 1.0])] * pipeline.stages)
    one = 1 / pipeline.chunks
    whole, left = (tuple(one * part for part in draw(parts)) for _ in range(2))
    holding = StageMemory(whole, left, draw(st.sampled_from([1.0, 1.3, 2.0, 3.0])))
    return SolverInput(
        pipeline=pipeline, holding=holding, goal=draw(st.sampled_from(["makespan", "latency"]))
    )
