"""Plans that synchronise: each published system, with small periods, on each cut of a model that it allows."""

from dataclasses import dataclass, replace

from covering_plans import Proven

from meshwright.plans.synchronisation.synchronisation import Synchronisation


def parameters(**keys):
    """An entry that averages parameters between islands."""
    return {"state": "parameter", "over": "dp_replicate", **keys}


def gradients(codec, *, combine=None, **options):
    """An entry that encodes or combines gradients."""
    compress = None if codec is None else {**codec, **options}
    return {"state": "gradient", "over": "dp_replicate", "compress": compress, "combine": combine}


NESTEROV = {"nesterov": {"lr": 0.7, "momentum": 0.9}}


@dataclass(frozen=True)
class System:
    """Entries in order, the steps of some rounds, and an optimizer."""

    entries: tuple[dict, ...]
    steps: int = 4
    optimizer: str | tuple[tuple[str, object], ...] = "adamw"

    @property
    def loose(self) -> bool:
        """True if replicas differ between exchanges, whose periods are numbers."""
        return all(type(entry.get("every")) is int for entry in self.entries)

    @property
    def of_matrices(self) -> bool:
        """True if a codec takes whole matrices."""
        return any("low_rank" in entry.get("compress", {}) for entry in self.entries)


SYSTEMS = {
    "local": System((parameters(every=2),)),
    "diloco": System((parameters(every=2, outer=NESTEROV),)),
    "streaming": System(
        (
            parameters(
                every=4,
                fragments=2,
                delay=1,
                merge=0.5,
                compress={"quantise": "e3m0"},
                outer={"nesterov": {"lr": 0.4}},
            ),
        ),
        8,
    ),
    "eager": System((parameters(every=2, delay=2, own="fresh", outer={"nesterov": {"lr": 0.4}}),), 6),
    "slowmo": System((parameters(every=2, outer={"momentum": {"lr": 1.0, "momentum": 0.5}}),)),
    "co2": System(
        (
            parameters(
                every=2,
                delay=2,
                outer={"momentum": {"lr": 1.0, "momentum": 0.5, "clip": 0.1, "staleness": True}},
            ),
        ),
        8,
    ),
    "des-loc": System(
        (
            parameters(every=2),
            {"state": "first_moment", "over": "dp_replicate", "every": 3},
            {"state": "second_moment", "over": "dp_replicate", "every": 6},
        ),
        12,
    ),
    "intellect-1": System(
        (parameters(every=2, keep="host", compress={"quantise": "int8"}, outer=NESTEROV),),
    ),
    "qsr": System((parameters(every={"qsr": {"base": 2, "alpha": 0.0175}}),)),
    "mt-dao": System(
        (parameters(every=2), {"state": "optimizer", "over": "dp_replicate", "every": 2}),
    ),
    "outer adam": System((parameters(every=2, outer={"adam": {"lr": 0.01, "epsilon": 1e-3}}),)),
    "sequential sparse": System(
        (
            parameters(
                every=3,
                delay=2,
                fragments={"count": 2, "pattern": "sequential"},
                compress={"top_k": 0.1, "error_feedback": True},
                outer={"sgd": {"lr": 0.9}},
            ),
        ),
        9,
    ),
    "low rank": System((parameters(every=2, compress={"low_rank": 2, "error_feedback": True}),)),
    "cosines": System((parameters(every=2, compress={"dct": {"chunk": 16, "keep": 4}}),)),
    "powersgd": System((gradients({"low_rank": 2}, error_feedback=True),), 3),
    "terngrad": System((gradients({"ternary": {"clip": 2.5}}),), 3),
    "8-bit": System((gradients({"quantise": "tree8"}),), 3),
    "detonation": System((gradients({"dct": {"chunk": 16, "keep": 4}}),), 3),
}
ONE = Proven("llama", dp_replicate=2)
CUTS = {
    "replicas": ONE,
    "pp": replace(ONE, pp=2, layers=4),
    "tp": replace(ONE, tp=2),
    "zero1": replace(ONE, dp_shard=2, sharding="zero1"),
    "zero3": replace(ONE, dp_shard=2, sharding="zero3", gather="per-layer"),
    "ep": Proven("mixtral", dp_replicate=2, dp_shard=2, ep=2, sharding="zero1", layers=2),
    "two loose axes": replace(ONE, dp_shard=2, micro_batches=1, layers=2),
}
TWO = "two loose axes"


def island_plan(system, cut):
    """Return a system on a cut of a model; over a second loose axis parameters are averaged at twice the period."""
    of = SYSTEMS[system]
    entries, steps = of.entries, of.steps
    if cut == TWO:
        first = next(entry["every"] for entry in entries)
        entries = (*entries, {"state": "parameter", "over": "dp_shard", "every": 2 * first})
        steps = max(steps + -steps % (2 * first), 4 * first)
    read = tuple(Synchronisation.model_validate(entry) for entry in entries)
    return replace(CUTS[cut], synchronise=read, steps=steps, optimizer=of.optimizer)


SHARDED = ("zero1", "zero3", "ep")
"""Cuts that leave flat parts of matrices, which have no factors of low rank."""
PLANS = [
    (system, cut)
    for system, of in SYSTEMS.items()
    for cut in CUTS
    if not (of.of_matrices and cut in SHARDED) and (cut != TWO or of.loose)
]
QUICK = (
    ("diloco", "pp"),
    ("streaming", "zero1"),
    ("eager", "tp"),
    ("co2", "zero3"),
    ("des-loc", "replicas"),
    ("local", TWO),
    ("intellect-1", "ep"),
    ("qsr", "replicas"),
)
