"""Keys of an Accelerate configuration that a plan has a word for, by the kind of job that ``distributed_type`` names.

FSDP version 2 shards over dp_shard·cp, and over all processes without a ``parallelism_config``. Parameters that are
not resharded after the forward pass are version 1's SHARD_GRAD_OP, which Accelerate's documentation calls ZeRO-2
(``usage_guides/fsdp.md``). Version 1 reads its strategy from ``fsdp_sharding_strategy`` alone
(``utils/dataclasses.py``).
"""

from collections.abc import Callable, Mapping
from math import prod

from meshwright.frameworks.accelerate import options as names
from meshwright.frameworks.accelerate.importing.megatron_section import megatron_facts
from meshwright.frameworks.importing.config_values import ConfigValues
from meshwright.frameworks.importing.imported_file import Fact

Facts = dict[str, Fact]
STRATEGIES = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2")
"""What version 1 calls them; a number counts from 1."""
SHARDINGS = {
    "FULL_SHARD": "zero3",
    "SHARD_GRAD_OP": "zero2",
    "NO_SHARD": "none",
    "HYBRID_SHARD": "zero3",
    "HYBRID_SHARD_ZERO2": "zero2",
}
STAGES = ("none", "zero1", "zero2", "zero3")
AXES = {"dp_replicate": "dp_replicate", "dp_shard": "dp_shard", "tp": "tp", "cp": "cp", "sp": "cp"}
"""Sizes of ``parallelism_config`` and the degree that each is; sp is Ulysses."""


def config_facts(settings: ConfigValues) -> Facts:
    """Every fact that the file states, defaults of Accelerate that differ from a short plan's included."""
    kind = str(settings.get(names.KIND, ""))
    facts = _processes(settings, kind) | _precision(settings)
    return facts | KINDS.get(kind, _replicas)(settings)


def fsdp_version(settings: ConfigValues) -> int:
    """1 where the file does not say it."""
    return settings.number(names.VERSION) or 1


def strategy(settings: ConfigValues) -> str:
    """Read the sharding strategy of version 1."""
    value = str(settings.get("fsdp_sharding_strategy", STRATEGIES[0])).upper()
    number = int(value) if value.isascii() and value.isdigit() and len(value) == 1 else 0
    return STRATEGIES[number - 1] if 1 <= number <= len(STRATEGIES) else value


def mesh_sizes(settings: ConfigValues) -> dict[str, int]:
    """Sizes of ``parallelism_config``, 1 where left out; empty where there is none or all are 1: no mesh is made."""
    if not settings.get(names.MESH_SECTION):
        return {}
    sizes = {axis: settings.number(f"{names.PREFIX}{axis}_size") or 1 for axis in AXES}
    return sizes if prod(sizes.values()) > 1 else {}


def _processes(settings: ConfigValues, kind: str) -> Facts:
    if kind == "NO":
        return {"devices": Fact(1, "distributed_type NO")}
    count = settings.number(names.PROCESSES, least=-1)
    return {"devices": settings.fact(names.PROCESSES, count)} if count and count > 0 else {}


def _precision(settings: ConfigValues) -> Facts:
    """``no`` may have been read as false. A training script may ask for another one when it starts."""
    value = settings.get(names.PRECISION)
    if value is None:
        return {"workload.precision": settings.fact("fp16", "fp16")} if settings.truth("fp16") else {}
    name = "no" if value is False else str(value).lower()
    found = {theirs: ours for ours, theirs in names.MIXED_PRECISION.items()}
    if name not in found:
        settings.problem(names.PRECISION, f"is one of {', '.join(found)}", "mixed_precision: bf16")
        return {}
    return {"workload.precision": settings.fact(names.PRECISION, found[name])}


def _mesh(settings: ConfigValues, *, ulysses: bool = False) -> Facts:
    """Degrees of ``parallelism_config``; missing ones are 1."""
    facts: Facts = {}
    for axis, size in mesh_sizes(settings).items():
        if axis != "sp" or (ulysses and size > 1):
            facts[f"layout.{AXES[axis]}"] = settings.fact(f"{names.PREFIX}{axis}_size", size)
    if "layout.tp" in facts and facts["layout.tp"].value > 1:
        facts["layout.sequence_parallel"] = Fact(False, "transformers' tp_plan leaves sequences whole")
    return facts


def _replicas(settings: ConfigValues) -> Facts:
    """Plain data parallelism, or one tensor-parallel group."""
    facts = _mesh(settings)
    for path in ("layout.dp_shard", "layout.cp"):
        facts.pop(path, None)
    return facts | {
        "stack": Fact("accelerate", "Accelerate keys"),
        "sharding": settings.fact(names.KIND, "none"),
    }


def _fsdp(settings: ConfigValues) -> Facts:
    facts: Facts = {"stack": Fact("accelerate", "Accelerate keys")}
    if fsdp_version(settings) == 1:
        facts |= _first_version(settings)
    else:
        facts |= _second_version(settings)
    if facts["sharding"].value == "zero3":
        facts["gather"] = _gather(settings)
    if names.OFFLOAD in settings and settings.truth(names.OFFLOAD) and _fetches(facts):
        facts |= {
            f"offload.{state}": settings.fact(names.OFFLOAD, 1.0) for state in ("optimizer", "parameters")
        }
    if names.CHECKPOINTING in settings:
        on = settings.truth(names.CHECKPOINTING)
        facts["recompute"] = settings.fact(names.CHECKPOINTING, "full" if on else "none")
    return facts


def _fetches(facts: Facts) -> bool:
    """Return true where parameters are sharded and gathered layer by layer."""
    return "gather" in facts and facts["gather"].value == "per-layer"


def _first_version(settings: ConfigValues) -> Facts:
    name, key = strategy(settings), "fsdp_sharding_strategy"
    facts = {"sharding": settings.fact(key, SHARDINGS.get(name, "zero3"))}
    if name.startswith("HYBRID"):
        processes, machines = settings.number(names.PROCESSES), settings.number(names.MACHINES)
        if processes and processes % (machines or 1) == 0:
            facts["shard_group"] = settings.fact(key, processes // (machines or 1))
    elif name != "NO_SHARD":
        facts["layout.dp_replicate"] = settings.fact(key, 1)
    return facts


def _second_version(settings: ConfigValues) -> Facts:
    reshard = settings.truth(names.RESHARD, default=True)
    facts = {"sharding": settings.fact(names.RESHARD, "zero3" if reshard else "zero2")}
    if not mesh_sizes(settings):
        return facts | {"layout.dp_replicate": Fact(1, "no parallelism_config")}
    return facts | _mesh(settings)


def _gather(settings: ConfigValues) -> Fact:
    """Units are decoder layers, or without a policy the model as a whole."""
    policy = str(settings.get(names.WRAP, "NO_WRAP")).upper()
    gather = "per-micro-batch" if policy == "NO_WRAP" else "per-layer"
    return settings.fact(names.WRAP, gather)


def _deepspeed(settings: ConfigValues) -> Facts:
    """Keys of the section; a configuration file of DeepSpeed's own stands above them and is not opened."""
    facts: Facts = {"stack": Fact("deepspeed", "distributed_type DEEPSPEED")} | _mesh(settings, ulysses=True)
    for axis in ("dp_replicate", "dp_shard"):
        facts.pop(f"layout.{axis}", None)
    if settings.get("deepspeed_config_file"):
        return facts
    stage = settings.number("zero_stage", least=0)
    stage = 2 if stage is None else stage
    if stage < len(STAGES):
        facts["sharding"] = settings.fact("zero_stage", STAGES[stage])
    if 1 <= stage < len(STAGES):
        facts["layout.dp_replicate"] = settings.fact("zero_stage", 1)
    if stage == 3:
        facts["gather"] = settings.fact("zero_stage", "per-layer")
    steps = settings.number("gradient_accumulation_steps")
    return facts | ({"accumulation": settings.fact("gradient_accumulation_steps", steps)} if steps else {})


KINDS: Mapping[str, Callable[[ConfigValues], Facts]] = {
    "FSDP": _fsdp,
    "DEEPSPEED": _deepspeed,
    "MEGATRON_LM": megatron_facts,
}
"""Kinds of jobs that shard; every other one runs plain data parallelism."""
