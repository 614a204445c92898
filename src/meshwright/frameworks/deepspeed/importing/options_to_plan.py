"""Keys of a DeepSpeed configuration that a plan has a word for.

ZeRO's stage is the sharding, over all of data parallelism. ``train_batch_size`` counts every rank of AutoTP
(``runtime/config.py``), so a global batch is it divided by tp. Ulysses (``sequence_parallel_size``) is read as cp: both
give a rank its part of each sequence.
"""

from collections.abc import Callable

from meshwright.frameworks.deepspeed import options as names
from meshwright.frameworks.deepspeed.importing.unread_options import reads_low_states
from meshwright.frameworks.importing.config_values import ConfigValues
from meshwright.frameworks.importing.imported_file import Fact
from meshwright.frameworks.option_table import read_facts
from meshwright.stack.state_types import HALF

Facts = dict[str, Fact]
GRADIENT_TYPES = ("fp32", "fp16", "bf16")
ADAM = ("adam", "adamw")


def config_facts(settings: ConfigValues) -> Facts:
    """Every fact that the file states, defaults of DeepSpeed that differ from a short plan's included."""
    facts: Facts = {"stack": Fact("deepspeed", "DeepSpeed keys")} | read_facts(names.TABLE.rows, settings)
    parts: tuple[Callable[[ConfigValues, Facts], Facts], ...] = (
        *(_degrees, _experts, _batch, _sharding, _offload),
        *(_precision, _optimizer, _recompute, _stack),
    )
    for part in parts:
        facts |= part(settings, facts)
    return facts


def stage_of(settings: ConfigValues) -> int | None:
    """ZeRO's stage; None where it is none."""
    whole = settings.get(names.ZERO)
    if isinstance(whole, bool):
        return int(whole)
    stage = settings.number(names.STAGE, least=0)
    if stage is not None and stage >= len(names.STAGES):
        return None
    return None if names.STAGE in settings and stage is None else stage or 0


def _degrees(settings: ConfigValues, facts: Facts) -> Facts:
    tp = settings.number(names.TP, least=0)
    if tp is None:
        return {}
    whole = Fact(False, f"{names.TP} leaves sequences whole")
    return {"layout.tp": settings.fact(names.TP, max(1, tp)), "layout.sequence_parallel": whole}


def _experts(settings: ConfigValues, facts: Facts) -> Facts:
    if not settings.truth(names.EXPERTS):
        return {}
    found: Facts = {}
    for name, path in (
        (names.EP, "layout.ep"),
        ("expert_parallel.expert_tensor_parallel_size", "layout.etp"),
    ):
        degree = settings.number(name)
        found[path] = settings.fact(name, degree or 1)
    return found


def _batch(settings: ConfigValues, facts: Facts) -> Facts:
    """Two of train batch, micro-batch and accumulation give the third once the number of ranks is known.

    Where all three are given the batch is held against the ranks of the cluster (``assemble``).
    """
    train, micro, steps = (settings.number(key) for key in (names.TRAIN, names.MICRO, names.ACCUMULATION))
    tp = facts["layout.tp"].value if "layout.tp" in facts else 1
    found: Facts = {}
    if names.TRAIN not in settings and names.MICRO not in settings:
        settings.problem(
            names.MICRO, f"one of {names.TRAIN} and {names.MICRO} must be there", f"{names.MICRO}: 1"
        )
    counted = steps is not None or (names.ACCUMULATION not in settings and names.TRAIN not in settings)
    if micro is not None and counted:
        found["accumulation"] = settings.fact(names.ACCUMULATION, steps or 1)
    if train is None:
        return found
    if train % tp:
        rule = f"{names.TRAIN} counts every rank of AutoTP: {train} mod {tp} = {train % tp}, must be 0"
        settings.problem(names.TRAIN, rule, f"{names.TRAIN}: {-(-train // tp) * tp}")
    else:
        found["workload.global_batch"] = settings.fact(names.TRAIN, train // tp)
    if names.MICRO not in settings:
        divisor = f"{steps or 1}·ranks"
        rule = f"left out it is {names.TRAIN} / (accumulation·ranks) = {train} / ({divisor}); taken as 1"
        settings.problem(names.MICRO, rule, f"{names.MICRO}: 1", ignored=True)
    if tp > 1:
        found["batch_ranks"] = Fact(tp, facts["layout.tp"].words)
    return found


def _sharding(settings: ConfigValues, facts: Facts) -> Facts:
    stage = stage_of(settings)
    if stage is None:
        return {}
    key = names.ZERO if isinstance(settings.get(names.ZERO), bool) else names.STAGE
    found = {"sharding": settings.fact(key, names.STAGES[stage])}
    group = settings.number(f"{names.ZERO}.mics_shard_size", least=-1)
    if stage == 3:
        found["gather"] = settings.fact(key, "per-layer")
    if stage == 3 and group is not None and group > 0:
        found["shard_group"] = settings.fact(f"{names.ZERO}.mics_shard_size", group)
    elif stage:
        found["layout.dp_replicate"] = settings.fact(key, 1)
    return found


def _offload(settings: ConfigValues, facts: Facts) -> Facts:
    """Return the shares of states in host memory; NVMe has no counterpart."""
    stage = stage_of(settings) or 0
    found: Facts = {}
    for key, older, path, least in (
        (names.OPTIMIZER_HOME, f"{names.ZERO}.cpu_offload", "offload.optimizer", 1),
        (names.PARAMETER_HOME, f"{names.ZERO}.cpu_offload_param", "offload.parameters", 3),
    ):
        said = key if settings.get(key) == "cpu" else older if settings.truth(older) else None
        if said and stage >= least:
            found[path] = settings.fact(said, 1.0)
    ratio = settings.get(names.OPTIMIZER_RATIO)
    if "offload.optimizer" in found and stage == 3 and isinstance(ratio, float) and 0 <= ratio <= 1:
        found["offload.optimizer"] = settings.fact(names.OPTIMIZER_RATIO, ratio)
    return found


def _precision(settings: ConfigValues, facts: Facts) -> Facts:
    """bf16 or fp16 where one is on; nothing where a script decides; fp32 where neither is asked for."""
    open_ended = False
    for key, precision in ((names.BF16, "bf16"), ("bfloat16.enabled", "bf16"), (names.FP16, "fp16")):
        if key in settings and settings.get(key) is None:
            open_ended = True
        elif settings.truth(key):
            return {"workload.precision": settings.fact(key, precision)}
    autocast = settings.get("torch_autocast.dtype")
    if settings.truth("torch_autocast.enabled"):
        found = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16"}
        name = str(autocast).removeprefix("torch.")
        if found.get(name, name) in ("bf16", "fp16"):
            return {"workload.precision": settings.fact("torch_autocast.dtype", found.get(name, name))}
    if open_ended:
        return {}
    return {"workload.precision": Fact("fp32", "neither bf16.enabled nor fp16.enabled")}


def _optimizer(settings: ConfigValues, facts: Facts) -> Facts:
    name = str(settings.get("optimizer.type", "")).lower()
    if name in ADAM or name == "sgd":
        return {"workload.optimizer": settings.fact("optimizer.type", "sgd" if name == "sgd" else "adamw")}
    return {}


def _recompute(settings: ConfigValues, facts: Facts) -> Facts:
    """Read recomputation: a pipeline module recomputes groups of layers, elsewhere the model's code does."""
    key = "pipeline.activation_checkpoint_interval"
    return {"recompute": settings.fact(key, "full")} if settings.number(key, least=0) else {}


def _stack(settings: ConfigValues, facts: Facts) -> Facts:
    stage = stage_of(settings) or 0
    asked = settings.truth(names.OVERLAP, default=stage == 3)
    found = {"stack.overlap_gradient_reduction": settings.fact(names.OVERLAP, asked)} if stage else {}
    if reads_low_states(settings):
        found["dtypes.master"] = settings.fact(names.LOW_MASTER, "none")
        for moment in ("first_moment", "second_moment"):
            found[f"dtypes.{moment}"] = settings.fact(names.LOW_MOMENTS, "bf16")
    types = {names.WIRE: "dtypes.reduce", names.ACCUMULATED: "dtypes.gradient"}
    said = {key: settings.get(key) for key in types if settings.get(key) in GRADIENT_TYPES}
    for key, path in types.items() if said else ():
        found[path] = settings.fact(key, said[key]) if key in said else Fact(HALF, "")
    return found
