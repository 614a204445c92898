"""Find options of an Accelerate configuration that conflict, or that Accelerate ignores.

Source: Accelerate 1.15.0, ``parallelism_config.py``, ``commands/launch.py``, ``utils/dataclasses.py``,
``accelerator.py``.
"""

from collections.abc import Callable, Mapping
from math import prod

from meshwright.errors import nearest
from meshwright.frameworks.accelerate import options as names
from meshwright.frameworks.accelerate.importing.options_to_plan import (
    KINDS,
    STAGES,
    STRATEGIES,
    fsdp_version,
    mesh_sizes,
    strategy,
)
from meshwright.frameworks.accelerate.importing.unread_options import OTHERS
from meshwright.frameworks.importing.config_values import ConfigValues
from meshwright.frameworks.importing.imported_file import Fact, number_in
from meshwright.frameworks.importing.option_requirements import note_broken_keys
from meshwright.plans.rules.rule_input import largest_divisor

PLACE = "meshwright.frameworks.accelerate", "accelerate-1.15.0"
SECTIONS = {
    names.FSDP_SECTION: "FSDP",
    "deepspeed_config": "DEEPSPEED",
    names.MEGATRON_SECTION: "MEGATRON_LM",
    names.MESH_SECTION: "",
    "fp8_config": "",
    "dynamo_config": "",
}
"""Sections, and the kind of job that alone reads them."""
TYPES = ("NO", "MULTI_GPU", *KINDS, *OTHERS)
POLICIES = (names.WRAPPED, "SIZE_BASED_WRAP", "NO_WRAP")
DEEPSPEED_OWN = (
    *("zero_stage", "gradient_accumulation_steps", "gradient_clipping", "offload_optimizer_device"),
    *("offload_param_device", "offload_optimizer_nvme_path", "offload_param_nvme_path"),
    *("zero3_save_16bit_model", names.PRECISION),
)
"""Keys that may not stand beside a DeepSpeed configuration file."""


def config_rules(settings: ConfigValues, facts: Mapping[str, Fact]) -> None:
    """Note everything that these keys contradict by themselves."""
    kind = str(settings.get(names.KIND, ""))
    for rule in RULES:
        rule(settings, kind)
    if kind == "MEGATRON_LM":
        _equal_stages(settings, facts)


def _equal_stages(settings: ConfigValues, facts: Mapping[str, Fact]) -> None:
    """Megatron needs equal stages without a layout, and the launcher has no option for one."""
    layers, pp = number_in(facts, "model.layers", 0), number_in(facts, "layout.pp")
    if layers % pp:
        rule = f"layers mod pp = {layers} mod {pp} = {layers % pp}, must be 0"
        key = f"{names.MEGATRON}pp_degree"
        settings.problem(key, rule, f"{key}: {largest_divisor(layers, pp)}")


def _kind(settings: ConfigValues, kind: str) -> None:
    if names.KIND not in settings:
        settings.problem(names.KIND, "must be there", "distributed_type: FSDP")
    elif kind not in TYPES:
        settings.problem(names.KIND, "is no type of Accelerate", nearest(kind.upper(), TYPES))
    if str(settings.get(names.ENVIRONMENT, "LOCAL_MACHINE")) != "LOCAL_MACHINE":
        rule = "only jobs on machines of one's own are read"
        settings.problem(names.ENVIRONMENT, rule, "LOCAL_MACHINE")
    for section, reader in SECTIONS.items():
        if reader and reader != kind and settings.get(section):
            rule = f"is for distributed_type {reader}: ignored here"
            settings.problem(section, rule, f"distributed_type: {reader}", ignored=True)


def _processes(settings: ConfigValues, kind: str) -> None:
    processes, machines = settings.number(names.PROCESSES, least=-1), settings.number(names.MACHINES)
    if kind == "NO" and processes and processes > 1:
        rule = "distributed_type NO starts one process"
        settings.problem(names.PROCESSES, rule, "distributed_type: MULTI_GPU", ignored=True)
    elif processes and machines and processes > 0 and processes % machines:
        rule = f"num_processes mod num_machines = {processes} mod {machines} = {processes % machines}"
        settings.problem(names.PROCESSES, rule, f"num_processes: {-(-processes // machines) * machines}")


def _versions(settings: ConfigValues, kind: str) -> None:
    if kind != "FSDP":
        return
    version, reshard = fsdp_version(settings), names.RESHARD
    if version not in (1, 2):
        settings.problem(names.VERSION, "is 1 or 2", "fsdp_version: 2")
    if version == 1 and mesh_sizes(settings):
        rule = "parallelism_config needs FSDP version 2"
        settings.problem(names.VERSION, rule, "fsdp_version: 2")
    if version == 1 and strategy(settings) not in STRATEGIES:
        settings.problem("fsdp_sharding_strategy", "is no strategy", nearest(strategy(settings), STRATEGIES))
    if version == 1 and reshard in settings:
        rule = "FSDP version 1 reads fsdp_sharding_strategy and not this: it runs " + strategy(settings)
        given = settings.get(reshard)
        meant = "FULL_SHARD" if given is True else "SHARD_GRAD_OP" if given is False else given
        settings.problem(reshard, rule, f"fsdp_sharding_strategy: {meant}", ignored=True)
    if version == 2 and "fsdp_sharding_strategy" in settings:
        rule = "FSDP version 2 reads fsdp_reshard_after_forward and not this"
        settings.problem("fsdp_sharding_strategy", rule, "fsdp_reshard_after_forward: true", ignored=True)


def _units(settings: ConfigValues, kind: str) -> None:
    if kind != "FSDP":
        return
    key = names.WRAP
    policy = str(settings.get(key, "NO_WRAP")).upper()
    if policy not in POLICIES:
        settings.problem(key, "is no policy", nearest(policy, POLICIES))
    elif policy == "NO_WRAP":
        rule = "the model is one unit: all its parameters are gathered at once"
        settings.problem(key, rule, f"{key}: {names.WRAPPED}", ignored=True)
    offload = "fsdp_activation_checkpointing_offload"
    if settings.truth(offload) and not settings.truth(names.CHECKPOINTING):
        rule = "needs fsdp_activation_checkpointing"
        settings.problem(offload, rule, "fsdp_activation_checkpointing: true")
    elif settings.truth(offload) and fsdp_version(settings) == 1:
        settings.problem(offload, "needs FSDP version 2", "fsdp_version: 2")


def _mesh(settings: ConfigValues, kind: str) -> None:
    """Sizes against each other and against the processes."""
    sizes = mesh_sizes(settings)
    if not sizes:
        return
    replicate, shard, tp, cp, sp = (sizes[axis] for axis in ("dp_replicate", "dp_shard", "tp", "cp", "sp"))
    if cp > 1 and sp > 1:
        settings.problem(
            f"{names.PREFIX}sp_size",
            f"cp = {cp} and sp = {sp} exclude each other",
            f"{names.PREFIX}sp_size: 1",
        )
    if replicate > 1 and shard == 1 and max(tp, cp) > 1:
        rule = f"dp_replicate = {replicate} beside tp = {tp} or cp = {cp} needs dp_shard > 1"
        hint = f"{names.PREFIX}dp_replicate_size: 1, {names.PREFIX}dp_shard_size: {replicate}"
        settings.problem(f"{names.PREFIX}dp_replicate_size", rule, hint)
    for axis, backend in (("cp", "torch"), ("sp", "deepspeed")):
        if settings.get(f"{names.PREFIX}{axis}_backend", backend) != backend:
            settings.problem(f"{names.PREFIX}{axis}_backend", f"is {backend}", backend)
    total, processes = prod(sizes.values()), settings.number(names.PROCESSES, least=-1)
    if processes and processes > 0 and total != processes and not (kind == "DEEPSPEED" and sp > 1):
        factors = "·".join(str(size) for size in sizes.values())
        rule = f"dp_replicate·dp_shard·tp·cp·sp = {factors} = {total}, not num_processes = {processes}"
        settings.problem(names.MESH_SECTION, rule, _fitting(sizes, processes))


def _fitting(sizes: Mapping[str, int], processes: int) -> str:
    """dp_shard or dp_replicate as the others ask for; where those do not divide, sharding over all."""
    for axis in ("dp_shard", "dp_replicate"):
        others = prod(size for name, size in sizes.items() if name != axis)
        if processes % others == 0:
            return f"{names.PREFIX}{axis}_size: {processes // others}"
    return f"{names.PREFIX}dp_shard_size: {processes}, all others 1"


def _mesh_and_kind(settings: ConfigValues, kind: str) -> None:
    """Axes that each kind of job runs."""
    sizes = mesh_sizes(settings)
    if not sizes:
        return
    if kind == "MEGATRON_LM" or (kind == "FSDP" and sizes["dp_shard"] * sizes["cp"] == 1):
        reasons = {"FSDP": "has no axis to shard over", "MEGATRON_LM": f"is refused with {kind}"}
        settings.problem(
            names.MESH_SECTION,
            reasons[kind],
            f"{names.PREFIX}dp_shard_size: {max(2, sizes['dp_replicate'])}"
            if kind == "FSDP"
            else "distributed_type: FSDP",
        )
    if kind.startswith("MULTI") and sizes["cp"] > 1:
        settings.problem(f"{names.PREFIX}cp_size", "context parallelism needs FSDP", "distributed_type: FSDP")
    if kind.startswith("MULTI") and sizes["dp_shard"] > 1:
        rule = f"nothing is sharded with distributed_type {kind}"
        settings.problem(f"{names.PREFIX}dp_shard_size", rule, "distributed_type: FSDP", ignored=True)
    if kind != "DEEPSPEED" and sizes["sp"] > 1:
        rule = "Ulysses runs with distributed_type DEEPSPEED"
        settings.problem(f"{names.PREFIX}sp_size", rule, "distributed_type: DEEPSPEED", ignored=True)


def _deepspeed(settings: ConfigValues, kind: str) -> None:
    if kind != "DEEPSPEED":
        return
    beside = [key for key in DEEPSPEED_OWN if settings.get(key) is not None]
    if settings.get("deepspeed_config_file") and beside:
        for key in beside:
            settings.problem(key, "may not stand beside deepspeed_config_file", "leave it out")
        return
    stage = settings.number("zero_stage", least=0)
    if stage is not None and stage >= len(STAGES):
        settings.problem("zero_stage", "ZeRO has stages 0 to 3", "zero_stage: 3")
    for name, least in (("offload_param_device", 3), ("offload_optimizer_device", 1)):
        if settings.on(name) and (2 if stage is None else stage) < least:
            settings.problem(name, f"takes effect from stage {least} on", "leave it out", ignored=True)


def _low_precision(settings: ConfigValues, kind: str) -> None:
    if str(settings.get(names.PRECISION, "")).lower() != "fp8":
        return
    backend = str(settings.get("fp8_backend", "")).upper()
    if kind == "DEEPSPEED" and backend == "MSAMP" and settings.number("zero_stage", least=0) == 3:
        settings.problem("fp8_backend", "MS-AMP does not run with ZeRO stage 3", "zero_stage: 2")
    if kind != "FSDP":
        return
    if backend == "MSAMP":
        settings.problem("fp8_backend", "MS-AMP does not run with FSDP", "backend: AO")
    loading = names.RAM_LOADING
    if backend == "AO" and settings.truth(loading, default=True):
        settings.problem(loading, "is on unless it is false, and torchao refuses it", f"{loading}: false")


def _requirements(settings: ConfigValues, kind: str) -> None:
    """Keys that lack another one, or that exclude it (``accelerate-1.15.0-requirements.csv``)."""
    note_broken_keys(PLACE, settings, {})


RULES: tuple[Callable[[ConfigValues, str], None], ...] = (
    _kind,
    _processes,
    _versions,
    _units,
    _mesh,
    _mesh_and_kind,
    _deepspeed,
    _low_precision,
    _requirements,
)
