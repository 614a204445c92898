"""The optimizer of a workload: a name of the table with the options that a plan writes, and their rules."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from meshwright.errors import Problem, nearest
from meshwright.workload.optimizers import OPTIMIZERS
from meshwright.workload.optimizers.optimizer_kind import OptimizerKind, Value

FIELD = "workload.optimizer"
DEFAULT_OPTIMIZER = "adamw"


@dataclass(frozen=True, slots=True)
class Optimizer:
    """An optimizer by name; ``written`` are the options that a plan gives, in the order of their names."""

    name: str = DEFAULT_OPTIMIZER
    written: tuple[tuple[str, Value], ...] = ()

    def __str__(self) -> str:
        options = ", ".join(f"{key} {value}" for key, value in self.written)
        return f"{self.name} ({options})" if options else self.name

    @property
    def kind(self) -> OptimizerKind:
        """The table's entry."""
        return OPTIMIZERS[self.name]

    @property
    def options(self) -> dict[str, Value]:
        """Return every option that has a value: as written, else its default."""
        defaults = {key: option.default for key, option in self.kind.options.items()}
        return {key: value for key, value in defaults.items() if value is not None} | dict(self.written)

    def options_of(self, scale: str) -> dict[str, Value]:
        """Return every option, Muon's scale where it is not written from a stack."""
        return ({"scale": scale} if "scale" in self.kind.options else {}) | self.options

    @property
    def steps(self) -> int:
        """Newton–Schulz steps of Muon."""
        return int(cast(float, self.options["steps"]))

    @property
    def tensor(self) -> str:
        """Muon's way with matrices under tensor parallelism."""
        return str(self.options["tensor"])

    @property
    def moments(self) -> tuple[str, ...]:
        """Keys of ``dtypes`` for the moments that it keeps of some element: Muon's, and those of the others."""
        of_others = self.others.moments if self.kind.of_matrices else ()
        return tuple(dict.fromkeys((*self.own_moments, *of_others)))

    @property
    def own_moments(self) -> tuple[str, ...]:
        """Keys of ``dtypes`` for the moments that it keeps of what it takes itself."""
        return self.kind.moments(self.options)

    @property
    def others(self) -> "Optimizer":
        """Return the optimizer of what is no matrix of a hidden layer; itself, if it takes everything.

        Muon's has Muon's weight decay.
        """
        if not self.kind.of_matrices:
            return self
        return Optimizer(str(self.options["others"]), (("weight_decay", self.options["weight_decay"]),))

    def problems(self) -> Iterator[Problem]:
        """Yield an unknown name, options that it does not have, and values out of range."""
        if self.name not in OPTIMIZERS:
            yield Problem(FIELD, self.name, "unknown", nearest(self.name, OPTIMIZERS))
            return
        known = self.kind.options
        for key, value in self.written:
            if key not in known:
                rule = f"is no option of {self.name}, which has {', '.join(known)}"
                owner = next((name for name, kind in OPTIMIZERS.items() if key in kind.options), None)
                hint = f"name: {owner}, or take it out" if owner else "take it out"
                yield Problem(f"{FIELD}.{key}", value, rule, hint)
            elif not known[key].legal(value):
                yield Problem(f"{FIELD}.{key}", value, known[key].rule, known[key].example)
        if self.name == "sgd" and self.options.get("nesterov") is True and not self.options["momentum"]:
            rule = "nesterov needs a momentum above 0"
            yield Problem(f"{FIELD}.nesterov", True, rule, "momentum: 0.9")


ADAMW = Optimizer()
"""What a plan trains with if it says nothing, and whose states a stack file counts."""
