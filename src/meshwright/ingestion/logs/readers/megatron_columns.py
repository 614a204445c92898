"""Megatron's options as columns of a table of runs, by the names of its argument table and of Megatron-Core's fields.

Source: ``megatron/training/arguments.py`` at tags v2.0, v2.6, 23.04, core_v0.4.0 to core_v0.19.0: the existing options
and how ``validate_args`` changes them before the table is printed; ``core/transformer/transformer_config.py`` for
the names that Megatron-Bridge prints. Megatron does not print its release: a table with ``DDP_impl`` is of 2021 or
2022, with ``sequence_parallel`` of 2022; one with ``deepspeed True`` is Megatron-DeepSpeed's; every other has a core.
Before 2022 there was neither sequence parallelism nor an output layer of its own.
"""

import re
from collections.abc import Iterator

from meshwright.frameworks.importing.command_line import GivenOption
from meshwright.frameworks.importing.imported_file import Fact
from meshwright.frameworks.megatron.exporting.plan_to_options import STRATEGIES
from meshwright.frameworks.megatron.importing.pipeline_layout import read_layout
from meshwright.ingestion.logs.events import Cells, Settings, first_text, is_on, whole_number
from meshwright.ingestion.logs.readers.megatron_model_columns import MODEL_OPTIONS, MODEL_PARTS, Found, words
from meshwright.plans.choices.sharding import SHARDINGS
from meshwright.validation.cell_parsers import stage_layers_text

LAYOUT, FURTHER = "pipeline_model_parallel_layout", "mtp_num_layers"
ENDS = (
    *("decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers"),
    *("num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage"),
)
ACCOUNTED = ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split")
NUMBERS: dict[str, tuple[str, ...]] = {
    "layers": ("num_layers",),
    "hidden": ("hidden_size",),
    "heads": ("num_attention_heads",),
    "vocab": ("padded vocab", "padded_vocab_size", "vocab_size"),
    "seq_len": ("seq_length", "encoder_seq_length"),
    "global_batch": ("global_batch_size",),
    "micro_batch": ("micro_batch_size",),
    "devices": ("world_size",),
    "dp": ("data_parallel_size",),
    "tp": ("tensor_model_parallel_size",),
    "pp": ("pipeline_model_parallel_size",),
    "cp": ("context_parallel_size",),
    "ep": ("expert_model_parallel_size",),
    "virtual_stages": ("virtual_pipeline_model_parallel_size",),
    "next_token_layers": ("mtp_num_layers",),
}
"""Columns that are a number in the table; the first name that has one counts."""
FSDP_STRATEGIES = {"no_shard": "none", "optim": "zero1"} | {
    theirs: ours for ours, theirs in STRATEGIES.items()
}
CORE_ATTENTION = "core_attn"
"""The modules of selective recomputation if none are listed."""
GRANULARITIES = ("recompute_granularity", "activations_checkpoint_granularity")
OLD_CHECKPOINTING = ("checkpoint_activations", "activations_checkpoint_method")
OFFLOADS = ("optimizer_cpu_offload", "cpu_offloading", "fine_grained_activation_offloading", "cpu_optimizer")
DISPATCHER, EXPERT_OVERLAP = "moe_token_dispatcher_type", "overlap_moe_expert_parallel_comm"
DISPATCHERS = {"alltoall": "all-to-all", "flex": "once"}
OTHERS = (
    *("deepspeed", "zero_stage", "sequence_parallel", "sft", "overlap_grad_reduce", "tp_comm_overlap"),
    *(DISPATCHER, EXPERT_OVERLAP),
    *("use_distributed_optimizer", "num_distributed_optimizer_instances", "use_torch_fsdp2"),
    *("use_megatron_fsdp", "use_custom_fsdp", "data_parallel_sharding_strategy"),
    *("recompute_modules", "recompute_method", "recompute_num_layers", *GRANULARITIES, *OLD_CHECKPOINTING),
    *("bf16", "fp16", "fp8", "fp8_recipe", "fp8_e4m3", "fp8_hybrid", "fp4", "params_dtype"),
    *("moe_shared_expert_intermediate_size", "moe_layer_freq", "hybrid_layer_pattern"),
)
NUMBER_OPTIONS = tuple(name for names in NUMBERS.values() for name in names)
OPTIONS_READ = frozenset((*NUMBER_OPTIONS, *MODEL_OPTIONS, *OTHERS, *OFFLOADS, LAYOUT, *ENDS, *ACCOUNTED))
"""Every option that is read; the table has several hundred more."""


def megatron_columns(settings: Settings) -> Cells:
    """Return every column that the options fill; empty if they do not describe a run."""
    cells: Cells = {}
    for column, names in NUMBERS.items():
        for name in names:
            if column not in cells and (value := whole_number(settings, name)):
                cells[column] = Fact(str(value), f"{name} {value}")
    if not cells:
        return {}
    for part in (*MODEL_PARTS, _software, _sharding, _recompute, _pipeline, _workload):
        cells |= dict(part(settings))
    notes = list(_remarks(settings))
    return cells | ({"notes": Fact("; ".join(notes), "; ".join(notes))} if notes else {})


def _software(settings: Settings) -> Found:
    """Yield the stack, and the overlaps that are switched off."""
    old = "DDP_impl" in settings
    if is_on(settings, "deepspeed"):
        yield "stack", Fact("megatron-deepspeed-2022", "deepspeed True")
    elif old:
        year = "2022" if "sequence_parallel" in settings else "2021"
        yield "stack", Fact(f"megatron-lm-{year}", f"an argument table of {year}")
    else:
        yield "stack", Fact("megatron-core", "an argument table of Megatron-Core")
    if settings.get("overlap_grad_reduce", "").lower() == "false" and not _fsdp(settings):
        yield "comm_overlap", Fact("none", "overlap_grad_reduce False")
    if "tp_comm_overlap" in settings:
        overlap = is_on(settings, "tp_comm_overlap")
        yield "tp_overlap", Fact(str(overlap).lower(), f"tp_comm_overlap {overlap}")
    if whole_number(settings, "num_experts"):
        yield from _exchange(settings)


def _exchange(settings: Settings) -> Found:
    """Yield the form of expert dispatch, and whether it overlaps compute."""
    if kind := DISPATCHERS.get(settings.get(DISPATCHER, "")):
        yield "expert_dispatch", Fact(kind, f"{DISPATCHER} {settings[DISPATCHER]}")
    if EXPERT_OVERLAP in settings:
        overlapped = is_on(settings, EXPERT_OVERLAP)
        yield "expert_overlap", Fact(str(overlapped).lower(), f"{EXPERT_OVERLAP} {overlapped}")


def _fsdp(settings: Settings) -> str | None:
    names = ("use_megatron_fsdp", "use_custom_fsdp")
    return next((name for name in names if is_on(settings, name)), None)


def _sharding(settings: Settings) -> Found:
    strategy, fsdp = first_text(settings, "data_parallel_sharding_strategy") or "no_shard", _fsdp(settings)
    stage = first_text(settings, "zero_stage") or ""
    if is_on(settings, "deepspeed") and re.fullmatch(r"[0-3](\.0)?", stage):
        yield "sharding", Fact(SHARDINGS[int(stage[0])], f"zero_stage {stage}")
    elif fsdp and strategy in FSDP_STRATEGIES:
        yield "sharding", Fact(FSDP_STRATEGIES[strategy], f"{fsdp} with {strategy}")
    elif is_on(settings, "use_torch_fsdp2"):
        yield "sharding", Fact("zero3", "use_torch_fsdp2 True")
    elif is_on(settings, "use_distributed_optimizer"):
        yield "sharding", Fact("zero1", "use_distributed_optimizer True")
    elif "use_distributed_optimizer" in settings or "DDP_impl" in settings:
        yield "sharding", Fact("none", words(settings, "use_distributed_optimizer"))
    copies = whole_number(settings, "num_distributed_optimizer_instances")
    data = whole_number(settings, "data_parallel_size")
    if copies and data and copies > 1 and data % copies == 0:
        yield "shard_group", Fact(str(data // copies), f"num_distributed_optimizer_instances {copies}")


def _recompute(settings: Settings) -> Found:
    """Yield full, selective or a list of modules; in old tables from the checkpointing options."""
    granularity = first_text(settings, *GRANULARITIES)
    old = first_text(settings, "activations_checkpoint_method") or is_on(settings, "checkpoint_activations")
    if granularity == "full" or (old and not granularity):
        yield "recompute", Fact("full", "full granularity, or an option before there was one")
    elif granularity == "selective":
        modules = " ".join(re.findall(r"\w+", settings.get("recompute_modules", CORE_ATTENTION)))
        if modules:
            name = "selective" if modules in (CORE_ATTENTION, "None") else modules
            yield "recompute", Fact(name, f"selective granularity of {modules}")
    elif any(name in settings for name in (*GRANULARITIES, *OLD_CHECKPOINTING)):
        yield "recompute", Fact("none", "no recomputation in the table")


def _pipeline(settings: Settings) -> Found:
    stages, chunks = (
        whole_number(settings, *NUMBERS["pp"]),
        whole_number(settings, *NUMBERS["virtual_stages"]),
    )
    if stages:
        schedule = "none" if stages == 1 else "interleaved-1f1b" if chunks and chunks > 1 else "1f1b"
        yield "schedule", Fact(schedule, f"Megatron's schedule for pp {stages}")
    yield from stage_columns(settings)
    if whole_number(settings, "tensor_model_parallel_size"):
        on = is_on(settings, "sequence_parallel")
        yield "sequence_parallel", Fact(str(on).lower(), words(settings, "sequence_parallel"))


def _workload(settings: Settings) -> Found:
    """Yield the precision of matrix products: the narrowest type of mixed precision."""
    recipe, fp8 = first_text(settings, "fp8_recipe"), first_text(settings, "fp8") or "False"
    if first_text(settings, "fp4"):
        yield "precision", Fact("nvfp4", words(settings, "fp4"))
    elif fp8 != "False" or is_on(settings, "fp8_e4m3") or is_on(settings, "fp8_hybrid"):
        name = "mxfp8" if recipe == "mxfp8" else "fp8"
        yield "precision", Fact(name, f"fp8 with the recipe {recipe or 'that is usual'}")
        if recipe:
            yield "fp8_recipe", Fact(recipe[:40], f"fp8_recipe {recipe[:40]}")
    else:
        for name in ("bf16", "fp16"):
            if is_on(settings, name):
                yield "precision", Fact(name, f"{name} True")
        if (settings.get("bf16"), settings.get("fp16")) == ("False", "False"):
            yield "precision", Fact("fp32", "neither bf16 nor fp16")
    if is_on(settings, "sft"):
        yield "task", Fact("sft", "sft True")


def _remarks(settings: Settings) -> Iterator[str]:
    """Yield facts about the run that no column expresses."""
    if is_uneven(settings) and not any(stage_columns(settings)):
        yield "stages of unequal length"
    if (
        first_text(settings, "recompute_granularity") == "full"
        and first_text(settings, "recompute_method") == "block"
    ):
        yield f"recomputes {settings.get('recompute_num_layers', 'some')[:20]} layers of a stage only"
    if settings.get("recompute_granularity") == "selective" and settings.get("recompute_modules") == "":
        yield "recomputes modules that the log lists over several lines"
    for name in OFFLOADS:
        if is_on(settings, name):
            yield f"{name}: states or activations are kept in the host's memory"
    if whole_number(settings, "num_experts", "num_moe_experts"):
        if first_text(settings, "moe_shared_expert_intermediate_size"):
            yield "shared experts"
        if (first_text(settings, "moe_layer_freq") or "1") != "1":
            yield "dense layers between those with experts"
    if first_text(settings, "hybrid_layer_pattern"):
        yield "layers of several kinds"


def is_uneven(settings: Settings) -> bool:
    """Return whether an option makes stages unequal."""
    asked = any(first_text(settings, name) for name in (LAYOUT, *ENDS))
    return asked or any(is_on(settings, name) for name in ACCOUNTED)


def stage_columns(settings: Settings) -> Found:
    """Yield ``stage_layers`` if stages are unequal and the options give the length of each."""
    layout = first_text(settings, LAYOUT)
    held = _of_layout(layout) if layout else [] if is_uneven(settings) else _with_further(settings)
    if (
        held
        and min(held) > 0
        and sum(held) == sum(whole_number(settings, name) or 0 for name in ("num_layers", FURTHER))
    ):
        words = (
            f"{LAYOUT} {layout}"
            if layout
            else f"{FURTHER} {settings[FURTHER]} in the last of {len(held)} stages"
        )
        yield "stage_layers", Fact(stage_layers_text(held), words)


def _of_layout(layout: str) -> list[int]:
    return [stage.layers + stage.further for stage in read_layout(GivenOption(LAYOUT, (layout,), 0), [])]


def _with_further(settings: Settings) -> list[int]:
    """Return the layers of equal stages, with multi-token-prediction layers in the last."""
    layers, further = whole_number(settings, "num_layers"), whole_number(settings, FURTHER)
    stages = (whole_number(settings, "pipeline_model_parallel_size") or 1) * (
        whole_number(settings, "virtual_pipeline_model_parallel_size") or 1
    )
    if not layers or not further or stages == 1 or layers % stages:
        return []
    return [*[layers // stages] * (stages - 1), layers // stages + further]
