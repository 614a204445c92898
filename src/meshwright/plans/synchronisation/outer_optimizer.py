"""The key ``outer`` of an entry of ``synchronise``: how the mean change of parameters moves the anchor.

With Δ̄ = anchor − mean of the replicas' parameters:

============  =====================================================================================================
none          anchor ← anchor − Δ̄, the mean
``sgd``       anchor ← anchor − lr·Δ̄
``momentum``  m ← β·m + Δ̄/Λ, clipped to ±clip; anchor ← anchor − lr·m (SlowMo, arXiv 1910.00643; CO2, arXiv 2401.16265)
``nesterov``  m ← β·m + Δ̄; anchor ← anchor − lr·(Δ̄ + β·m) (DiLoCo, arXiv 2311.08105)
``adam``      Adam's step on Δ̄
============  =====================================================================================================

Values are checked by ``plans/rules/synchronisation``.
"""

from meshwright.plans.files.strict_types import Number, Strict

OUTERS = ("sgd", "momentum", "nesterov", "adam")


class OuterSgd(Strict):
    """``lr``: the step."""

    lr: Number


class OuterMomentum(Strict):
    """``clip``: the largest magnitude of an element of m; ``staleness``: divide by CO2's penalty Λ."""

    lr: Number
    momentum: Number = 0.9
    clip: Number | None = None
    staleness: bool = False


class OuterNesterov(Strict):
    """Nesterov's momentum."""

    lr: Number
    momentum: Number = 0.9


class OuterAdam(Strict):
    """Adam without weight decay."""

    lr: Number
    betas: tuple[Number, Number] = (0.9, 0.999)
    epsilon: Number = 1e-8


class Outer(Strict):
    """One optimizer."""

    sgd: OuterSgd | None = None
    momentum: OuterMomentum | None = None
    nesterov: OuterNesterov | None = None
    adam: OuterAdam | None = None

    @property
    def written(self) -> tuple[str, ...]:
        """The optimizers that are written: one in a legal plan."""
        return tuple(name for name in OUTERS if getattr(self, name) is not None)

    @property
    def name(self) -> str:
        """The optimizer of a legal entry."""
        (name,) = self.written
        return name

    @property
    def moments(self) -> tuple[str, ...]:
        """The values that it keeps of each parameter."""
        return {"sgd": (), "adam": ("outer_first", "outer_second")}.get(self.name, ("outer_first",))
