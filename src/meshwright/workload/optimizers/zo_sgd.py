"""SGD on gradients that two forward passes estimate: MeZO (Malladi et al., arXiv 2305.17333), and DistZO2's split of
the two over replicas (arXiv 2507.03211).

With noise z ~ N(0, 1) of every parameter, the step of L is

    g = (L(θ + εz) − L(θ − εz)) / 2ε        θ ← θ − η(g·z + λθ)

There is no backward pass, no gradient and no state: z is made again from a seed wherever it is needed. ``both``: each
replica computes both losses, one after the other. ``split``: the first half of ``dp_replicate`` computes L(θ + εz), the
second half L(θ − εz) of the same sequences.
"""

from meshwright.workload.optimizers.optimizer_kind import (
    OptimizerKind,
    Option,
    is_number,
    not_negative,
    one_name,
)

BOTH, SPLIT = "both", "split"

ZO_SGD = OptimizerKind(
    options={
        "epsilon": Option(
            1e-3,
            "must be above 0",
            lambda value: isinstance(value, int | float) and is_number(value) and value > 0,
            "e.g. 1.0e-3",
        ),
        "perturbations": one_name(BOTH, BOTH, SPLIT),
        "weight_decay": not_negative(0.0),
    },
    moments=lambda _: (),
    forward_only=True,
)
