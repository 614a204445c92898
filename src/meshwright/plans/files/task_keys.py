"""Advice on keys that stand in the wrong kind of plan: training keys in a serving plan, and the other way round."""

from collections.abc import Callable, Mapping, Sequence

from meshwright.plans.forms.long import NOT_YET, LongPlan
from meshwright.plans.forms.short import ShortLayout, ShortPipeline, ShortPlan, WorkloadSpec
from meshwright.plans.serving.serving_file import (
    PoolSpec,
    ReplicaLayoutSpec,
    ServingFile,
    ServingWorkloadSpec,
)

Path = Sequence[str | int]
OF_TRAINING = "is a key of plans that train, and a serving plan has none"
OF_SERVING = "is a key of serving plans, whose task is serve"
SERVING_LATER: Mapping[str, tuple[str, ...]] = {
    "route": (),
    "speculate": (),
    "percentile": ("workload", "objectives"),
}
"""Keys of serving plans that this release refuses whatever their value, and the section they stand in."""
TAKE_OUT = "take it out"
IN_A_POOL = "pools.NAME.layout"
FOR_SERVING: Mapping[str, str] = {
    "layout": "pools: {all: {does: serve, layout: {tp: 8}}}",
    "layouts": "pools.NAME.layouts: {prefill: {tp: 8}, decode: {tp: 8}}",
    "pipeline": f"{IN_A_POOL}.pp",
    "seq_len": "input_tokens and output_tokens",
    "global_batch": "concurrency or rate_per_s",
    "precision": "pools.NAME.quantise: {weights: fp8}",
    "dtypes": "pools.NAME.quantise: {weights: fp8, kv: fp8}",
    "fp8_recipe": "pools.NAME.quantise: {weights: fp8}, or fp8-block",
    "micro_batch": "pools.NAME.batching.max_sequences",
    "dp_replicate": "attention_dp, or replicas of the pool",
    "dp_shard": "attention_dp, or replicas of the pool",
    "calls": "pools: {all: {does: serve, layout: {tp: 8}}}",
}
"""The keys of a serving plan that replace training keys; other training keys are taken out."""
FOR_TRAINING: Mapping[str, str] = {
    "input_tokens": "seq_len",
    "output_tokens": "seq_len",
    "concurrency": "global_batch",
    "attention_dp": "dp_replicate or dp_shard",
    "layouts": "layout",
    "quantise": "workload.precision",
    "replicas": "layout.dp_replicate",
}
_TRAINING_KEYS = frozenset({*ShortPlan.model_fields, *LongPlan.model_fields})
_SERVING_KEYS = frozenset({*ServingFile.model_fields, *SERVING_LATER})
_DEGREES = frozenset(ReplicaLayoutSpec.model_fields)


def foreign_key(kind: type[object], path: Path) -> tuple[str, str] | None:
    """Return the rule and the suggestion for an unknown key that another kind of plan has; None for other keys."""
    advice = _ADVICE.get(kind)
    return advice(str(path[-1]), [str(part) for part in path[:-1]]) if advice else None


def _in_serving(key: str, section: list[str]) -> tuple[str, str] | None:
    if key in SERVING_LATER and tuple(section) == SERVING_LATER[key]:
        return NOT_YET, TAKE_OUT
    known: frozenset[str] = frozenset()
    if not section:
        if key in _DEGREES:
            return "is a degree of a replica", f"{IN_A_POOL}.{key}"
        if key in PoolSpec.model_fields and key not in _TRAINING_KEYS:
            return "is a key of a pool", f"pools.NAME.{key}"
        known = _TRAINING_KEYS | WorkloadSpec.model_fields.keys()
    elif section == ["workload"]:
        known = frozenset(WorkloadSpec.model_fields)
    elif section[0] == "pools":
        known = _TRAINING_KEYS | ShortLayout.model_fields.keys() | ShortPipeline.model_fields.keys()
    return (OF_TRAINING, FOR_SERVING.get(key, TAKE_OUT)) if key in known else None


def _in_training(key: str, section: list[str]) -> tuple[str, str] | None:
    known: frozenset[str] = frozenset()
    if not section:
        known = _SERVING_KEYS - {"edges"}
    elif section == ["workload"]:
        known = frozenset(ServingWorkloadSpec.model_fields)
    elif section[0] in ("layout", "layouts"):
        known = _DEGREES
    if key not in known:
        return None
    return OF_SERVING, FOR_TRAINING.get(key, "take it out, or task: serve in a plan of pools")


_ADVICE: Mapping[type[object], Callable[[str, list[str]], tuple[str, str] | None]] = {
    ServingFile: _in_serving,
    ShortPlan: _in_training,
    LongPlan: _in_training,
}
