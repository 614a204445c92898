"""A pipeline of equal stages with several peers at each, for tests of churn."""

from meshwright.simulate.churn.peers import Work
from meshwright.simulate.churn.steps_under_churn import ChurnSetting, swarm


def uniform(stages=4, replicas=4, micro_batches=8, per_s=0.0, down_s=60.0, **more):
    """Forward passes of 1 s, backward passes of 2 s, messages of 0.2 s, and 1 s for the rest of a step."""
    orders = tuple(
        "F" * (ahead := min(micro_batches, stages - stage - 1)) + "FB" * (micro_batches - ahead) + "B" * ahead
        for stage in range(stages)
    )
    work = Work(
        forward_s=(1.0,) * stages,
        backward_s=(2.0,) * stages,
        forward_message_s=(0.2,) * stages,
        backward_message_s=(0.2,) * stages,
        in_flight=tuple(stages - stage for stage in range(stages)),
        orders=orders,
        tail_s=1.0,
    )
    of = {"work": work, "replicas": replicas, "micro_batches": micro_batches, "down_s": down_s}
    alone = ChurnSetting(**of, passes_s=0.0, per_s=0.0)
    passes_s = swarm(alone, 0, 0).mean_s - work.tail_s
    return ChurnSetting(**of, passes_s=passes_s, per_s=per_s, **more)
