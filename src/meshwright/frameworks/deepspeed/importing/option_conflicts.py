"""Find options of a DeepSpeed configuration that conflict, or that DeepSpeed ignores.

Source: DeepSpeed 0.19.8, ``runtime/config.py``, ``runtime/zero/config.py``, ``runtime/engine.py``,
``runtime/pipe/engine.py`` and ``module_inject/auto_ep_folding.py``.
"""

from collections.abc import Callable

from meshwright.frameworks.deepspeed.importing.options_to_plan import Facts, stage_of
from meshwright.frameworks.deepspeed.options import CP, EP, FP16, STAGE, STAGES, ZERO
from meshwright.frameworks.importing.config_values import ConfigValues
from meshwright.frameworks.importing.imported_file import number_in
from meshwright.frameworks.importing.option_requirements import note_broken_keys

PLACE = "meshwright.frameworks.deepspeed", "deepspeed-0.19.8"
PIPELINE_READ = ("activation_checkpoint_interval", "pipe_partitioned", "grad_partitioned", "use_reentrant")
"""What the pipeline engine takes from its section; the stages are arguments of PipelineModule in code."""


def config_rules(settings: ConfigValues, facts: Facts) -> None:
    """Note everything that these keys contradict by themselves."""
    for rule in RULES:
        rule(settings, facts)


def _stage(settings: ConfigValues, facts: Facts) -> None:
    if STAGE in settings and stage_of(settings) is None:
        settings.problem(STAGE, f"ZeRO has stages 0 to {len(STAGES) - 1}", f"{STAGE}: 3")


def _precision(settings: ConfigValues, facts: Facts) -> None:
    low = [name for name in ("bf16", "bfloat16") if settings.truth(f"{name}.enabled")]
    if low and settings.truth(FP16):
        settings.problem(FP16, f"{low[0]} and fp16 are both enabled", '"fp16": {"enabled": false}')


def _offload(settings: ConfigValues, facts: Facts) -> None:
    stage = stage_of(settings)
    if stage is None:
        return
    for name, least in (("offload_param", 3), ("offload_optimizer", 1)):
        key = f"{ZERO}.{name}.device"
        if settings.on(key) and stage < least:
            settings.problem(
                key, f"takes effect from stage {least} on: stage is {stage}", "leave it out", ignored=True
            )
    key = f"{ZERO}.offload_optimizer.ratio"
    ratio = settings.get(key, 1.0)
    if stage < 3 and isinstance(ratio, float) and ratio < 1:
        settings.problem(
            key, f"a part of the optimizer is offloaded at stage 3 only: stage is {stage}", "1.0"
        )


def _third_stage(settings: ConfigValues, facts: Facts) -> None:
    """Keys that only stage 3 reads."""
    stage = stage_of(settings)
    if stage is None or stage == 3:
        return
    quantised = ("zero_quantized_weights", "zero_quantized_gradients", "zero_quantized_nontrainable_weights")
    for key in settings.values:
        name = key.removeprefix(f"{ZERO}.")
        asked = name in (*quantised, "zero_hpz_partition_size") and settings.on(key)
        given = name.startswith("stage3_") and settings.get(key) not in (None, False)
        if key.startswith(f"{ZERO}.") and (asked or given):
            rule = f"takes effect at stage 3 only: stage is {stage}"
            settings.problem(key, rule, f"{STAGE}: 3, or leave it out", ignored=True)


def _sequence(settings: ConfigValues, facts: Facts) -> None:
    if number_in(facts, "layout.cp") > 1 and number_in(facts, "layout.tp") > 1:
        rule = "AutoTP puts its own groups in place of those of sequence parallelism: one of them"
        settings.problem(CP, rule, "sequence_parallel_size: 1")


def _tensor(settings: ConfigValues, facts: Facts) -> None:
    for section in ("tp", "tensor_parallel"):
        key = f"tensor_parallel.{section}.tp_size"
        size, tp = settings.number(key), number_in(facts, "layout.tp")
        if size is not None and size not in (1, tp):
            settings.problem(key, f"must be tensor_parallel.autotp_size = {tp}", str(tp))


def _pipeline(settings: ConfigValues, facts: Facts) -> None:
    for key in settings.values:
        name = key.removeprefix("pipeline.")
        if key.startswith("pipeline.") and name not in PIPELINE_READ:
            rule = "nothing reads it: stages are arguments of PipelineModule in code"
            settings.problem(key, rule, "set it in code", ignored=True)
    stage = stage_of(settings) or 0
    if "pipeline" in settings and stage >= 2:
        settings.problem(STAGE, f"a pipeline runs with ZeRO stages 0 and 1, not {stage}", f"{STAGE}: 1")


def _experts(settings: ConfigValues, facts: Facts) -> None:
    """Rules of AutoEP, alone and folded with AutoTP."""
    if "layout.ep" not in facts:
        return
    ep, etp, tp = (number_in(facts, f"layout.{axis}") for axis in ("ep", "etp", "tp"))
    if etp > 1:
        settings.problem("expert_parallel.expert_tensor_parallel_size", f"must be 1, not {etp}", "1")
    if tp > 1 and ep == 1:
        settings.problem(EP, f"with autotp_size = {tp} it must be more than 1", "2")
    if tp > 1 and settings.truth("use_data_before_expert_parallelism"):
        settings.problem("use_data_before_expert_parallelism", f"is refused with autotp_size = {tp}", "false")
    offloaded = [n for n in ("offload_optimizer", "offload_param") if f"{ZERO}.{n}" in settings]
    if tp > 1 and offloaded:
        settings.problem(
            f"{ZERO}.{offloaded[0]}", f"is refused with experts and autotp_size = {tp}", "leave it out"
        )
    if stage_of(settings) == 3:
        for name in ("zero_quantized_gradients", "zero_hpz_partition_size"):
            if settings.on(f"{ZERO}.{name}"):
                settings.problem(f"{ZERO}.{name}", "is refused with experts at stage 3", "leave it out")
        if number_in(facts, "layout.cp") > 1:
            settings.problem(CP, "is refused with experts at stage 3", "1")


def _requirements(settings: ConfigValues, facts: Facts) -> None:
    """Keys that lack another one, or that exclude it (``deepspeed-0.19.8-requirements.csv``)."""
    numbers = {f"@{axis}": number_in(facts, f"layout.{axis}") for axis in ("tp", "ep")}
    stage = stage_of(settings)
    if stage is not None:
        numbers["@stage"] = stage
    note_broken_keys(PLACE, settings, numbers)


RULES: tuple[Callable[[ConfigValues, Facts], None], ...] = (
    _stage,
    _precision,
    _offload,
    _third_stage,
    _sequence,
    _tensor,
    _pipeline,
    _experts,
    _requirements,
)
