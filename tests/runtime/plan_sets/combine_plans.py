"""Plans whose replicas' gradients are combined by a rule, on each cut of a model that allows it."""

from dataclasses import replace

from island_plans import CUTS

from meshwright.plans.synchronisation.synchronisation import Synchronisation


def combined(**keys):
    """An entry that combines gradients."""
    return {"state": "gradient", "over": "dp_replicate", **keys}


RULES = {
    "median": combined(combine="median"),
    "trimmed mean": combined(combine={"trimmed_mean": 1}),
    "krum": combined(combine={"krum": 0}),
    "flag": combined(combine={"flag": {"rank": 2}}),
    "flag of normalised rows": combined(combine={"flag": {"rank": 2, "average": "normalised"}}),
    "median of int8": combined(combine="median", compress={"quantise": "int8", "bucket": 64}),
    "quorum": combined(**{"with": {"quorum": 2}}),
    "dynamic quorum of medians": combined(combine="median", **{"with": {"quorum": "dynamic"}}),
    "quorum of the largest": combined(
        compress={"top_k": 0.1, "error_feedback": True}, **{"with": {"quorum": 2}}
    ),
    "cyclic code": combined(combine={"coded": {"tolerate": 1}}),
    "repetition code": combined(combine={"coded": {"tolerate": 2}}),
    "krum of the largest": combined(
        combine={"krum": 0}, compress={"top_k": 0.1, "error_feedback": True, "layers": "0..1"}
    ),
}
THREE = {name: replace(cut, dp_replicate=3) for name, cut in CUTS.items() if "loose" not in name}
THREE["zero3"] = replace(THREE["zero3"], gather="per-step")
THREE["ep"] = replace(THREE["ep"], dp_shard=2, ep=2)
THREE["dp_shard"] = replace(THREE["replicas"], dp_replicate=1, dp_shard=3)
THREE["cp"] = replace(THREE["replicas"], cp=2)
THREE["units of zero2 in a pipeline"] = replace(THREE["pp"], dp_shard=2, sharding="zero2")


def combine_plan(rule, cut):
    """Return a rule on a cut of a model."""
    entry = RULES[rule] | ({"over": "dp_shard"} if cut == "dp_shard" else {})
    return replace(THREE[cut], synchronise=(Synchronisation.model_validate(entry),), steps=3)


PLANS = [(rule, cut) for rule in RULES for cut in THREE]
CODES = ("cyclic code", "repetition code")
QUICK = (
    ("quorum", "pp"),
    ("quorum", "ep"),
    ("dynamic quorum of medians", "tp"),
    ("quorum of the largest", "replicas"),
    ("cyclic code", "zero1"),
    ("repetition code", "tp"),
    ("median", "replicas"),
    ("trimmed mean", "dp_shard"),
    ("krum", "pp"),
    ("flag of normalised rows", "pp"),
    ("flag", "tp"),
    ("flag", "zero1"),
    ("median of int8", "zero3"),
    ("krum of the largest", "cp"),
    ("krum", "ep"),
)
