"""Small problems of paths, drawn from seeds."""

import random

from meshwright.simulate.churn.paths.path_problem import PathProblem


def drawn_problem(seed):
    """Return a problem of 3 or 4 stages with 1 or 2 nodes each, and 2 to 4 micro-batches; 4 of them on 3 stages."""
    draw = random.Random(seed)
    stages, micro_batches = draw.choice([(3, 2), (4, 2), (3, 3), (4, 3), (3, 4)])
    stage_of = tuple(stage for stage in range(stages) for _ in range(draw.choice([1, 2])))
    nodes, first = range(len(stage_of)), [node for node, stage in enumerate(stage_of) if stage == 0]
    visits = draw.choice([2, stages - 1])
    average = micro_batches * (visits - 1) / (stages - 1)
    far = [[draw.choice([0.1, 0.5, 2.0]) for _ in nodes] for _ in nodes]
    return PathProblem(
        stage_of=stage_of,
        forward_s=tuple(draw.choice([1.0, 1.0, 1.7]) for _ in nodes),
        backward_s=tuple(draw.choice([1.5, 2.0]) for _ in nodes),
        message_s=tuple(tuple(far[min(a, b)][max(a, b)] for b in nodes) for a in nodes),
        starts=tuple(draw.choice(first) for _ in range(micro_batches)),
        visits=visits,
        least=int(average),
        most=int(average) + 1,
        memory=draw.choice([1, 2, 3]),
        swaps=draw.choice([0, 1]),
        head_s=draw.choice([None, tuple(0.25 for _ in nodes)]),
    )
