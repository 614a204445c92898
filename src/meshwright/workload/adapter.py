"""The adapters of a workload, small trained products added to frozen matrices, and their rules.

``lora`` (Hu et al., arXiv 2106.09685): a matrix W of r_out × r_in gets W + alpha/rank · B·A with A of rank × r_in and B
of r_out × rank; A and B train. ``hd-pissa`` (arXiv 2505.18777): data-parallel rank k trains the singular triplets
k·rank … (k+1)·rank − 1 of W on its own sequences, and after each step all ranks add the changes Σ_k (B′A′ − BA)_k to W.

Which matrices a target means: ``model/adapter_targets.py``.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from meshwright.errors import Problem, nearest
from meshwright.workload.base_types import QUANTISED

FIELD = "workload.adapter"
LORA, HD_PISSA = FORMS = ("lora", "hd-pissa")
DEFAULT_RANK = 32
MAX_RANK = 2**20
SIXTEEN_BITS = ("bf16", "fp16")
BASES = (*SIXTEEN_BITS, *QUANTISED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """Form and size of adapters. ``alpha`` None: the rank; ``targets`` None: all usual ones that the model has.

    ``base`` is the type of the layers' frozen matrices; None: the 16-bit type of the precision.
    """

    form: str = LORA
    rank: int = DEFAULT_RANK
    alpha: float | None = None
    targets: tuple[str, ...] | None = None
    base: str | None = None

    def __str__(self) -> str:
        return f"{self.form} of rank {self.rank}" + (f" on {self.base}" if self.base else "")

    @property
    def scale(self) -> float:
        """Factor of the product: alpha / rank."""
        return 1.0 if self.alpha is None else self.alpha / self.rank

    @property
    def quantised(self) -> str | None:
        """The type of a quantised base; None for a base in 16 bits."""
        return self.base if self.base in QUANTISED else None

    @property
    def of_each_replica(self) -> bool:
        """True if every data-parallel rank trains adapters of its own."""
        return self.form == HD_PISSA

    def problems(self, task: str, half: str) -> Iterator[Problem]:
        """Yield what is wrong with it for a task and a precision whose 16-bit type is ``half``."""
        if task != "lora":
            rule = f"adapters are trained by task lora, and the task is {task}"
            yield Problem(FIELD, self.form, rule, "task: lora, or leave it out")
        if self.form not in FORMS:
            yield Problem(f"{FIELD}.form", self.form, "unknown", nearest(self.form, FORMS))
        if not 1 <= self.rank <= MAX_RANK:
            rule = f"must be a whole number from 1 to {MAX_RANK}"
            yield Problem(f"{FIELD}.rank", self.rank, rule, f"e.g. {DEFAULT_RANK}")
        if self.alpha is not None and not 0 < self.alpha < float("inf"):
            yield Problem(
                f"{FIELD}.alpha", self.alpha, "must be above 0", f"e.g. {max(1, self.rank)}, the rank"
            )
        elif self.alpha not in (None, self.rank) and self.of_each_replica:
            rule = f"{HD_PISSA} adds changes of the singular triplets as they are"
            yield Problem(f"{FIELD}.alpha", self.alpha, rule, "leave it out")
        if self.targets is not None and not self.targets:
            yield Problem(f"{FIELD}.targets", "[]", "must name a matrix", "e.g. [q, v], or leave it out")
        yield from self._base_problems(half)

    def _base_problems(self, half: str) -> Iterator[Problem]:
        field = f"{FIELD}.base"
        if self.base is None:
            return
        if self.base not in BASES:
            yield Problem(field, self.base, "unknown", nearest(self.base, (half, *QUANTISED)))
        elif self.base in SIXTEEN_BITS and self.base != half:
            yield Problem(field, self.base, f"the precision computes in {half}", f"base: {half}")
        elif self.quantised and self.of_each_replica:
            rule = f"{HD_PISSA} adds to the base in every step, which a quantised one cannot hold"
            yield Problem(field, self.base, rule, f"base: {half}")
