"""Keys of an Accelerate configuration that change the step's time or memory and that a plan has no word for."""

from collections.abc import Mapping

from meshwright.frameworks.accelerate.options import KIND, PREFIX, WRAP
from meshwright.frameworks.accelerate.options import OFFLOAD as FSDP_OFFLOAD
from meshwright.frameworks.importing.config_values import ConfigValues
from meshwright.frameworks.importing.imported_file import Fact, UnmappedOption

ON_HOST = "offload.optimizer"
OFFLOAD = "offload is not priced: less memory and a longer step than predicted"
FSDP: Mapping[str, str] = {
    FSDP_OFFLOAD: OFFLOAD,
    "fsdp_activation_checkpointing_offload": "a plan offloads passes that wait for others, and this checkpoints within "
    "one pass: not priced, less memory and a longer step than predicted",
    "fsdp_ignored_modules": "modules that are not sharded are counted as sharded",
}
DEEPSPEED: Mapping[str, str] = {
    "deepspeed_config_file": "is not opened: sharding, batch and precision stand there; import it by itself",
    "offload_optimizer_device": OFFLOAD,
    "offload_param_device": OFFLOAD,
}
MEGATRON: Mapping[str, str] = {
    "megatron_lm_use_custom_fsdp": "parameters and gradients that are sharded beside the optimizer",
    "megatron_lm_decoder_last_pipeline_num_layers": "stages are taken as even",
    "megatron_lm_optimizer_cpu_offload": OFFLOAD,
    "megatron_lm_use_precision_aware_optimizer": "the optimizer's states are counted in 32 bit",
    "megatron_lm_recompute_num_layers": "keeps one input for so many layers; read as one per layer",
}
ALWAYS: Mapping[str, str] = {
    f"{PREFIX}sp_size": "Ulysses exchanges heads by all-to-all; read as cp, which passes keys and values around",
    "dynamo_backend": "compilation is not priced",
    "use_cpu": "training on processors is not priced",
}
KINDS: Mapping[str, Mapping[str, str]] = {"FSDP": FSDP, "DEEPSPEED": DEEPSPEED, "MEGATRON_LM": MEGATRON}
OTHER_DEVICES = ("MULTI_CPU", "MULTI_NPU", "MULTI_MLU", "MULTI_SDAA", "MULTI_MUSA", "MULTI_XPU")
OTHERS = (*OTHER_DEVICES, "MULTI_HPU", "MULTI_NEURON", "XLA")


def unread_keys(settings: ConfigValues, facts: Mapping[str, Fact]) -> tuple[UnmappedOption, ...]:
    """All keys of the file that a plan can not say, as far as this kind of job reads them."""
    kind = str(settings.get(KIND, ""))
    ignored = {problem.field for problem in settings.problems if problem.severity == "warning"}
    found = [
        UnmappedOption(settings.label(key), str(settings.get(key))[:80], why)
        for key, why in {**ALWAYS, **KINDS.get(kind, {})}.items()
        if settings.on(key)
        and settings.label(key) not in ignored
        and not (key == FSDP_OFFLOAD and ON_HOST in facts)
    ]
    if kind in OTHERS:
        found.append(UnmappedOption(KIND, kind, "the cluster says what kind of devices there are"))
    if kind == "FSDP":
        found += _sharding(settings, facts)
    return tuple(found)


def _sharding(settings: ConfigValues, facts: Mapping[str, Fact]) -> list[UnmappedOption]:
    """Return the remark on FSDP's ZeRO-2, which shards memory but not its traffic."""
    found = []
    if facts["sharding"].value == "zero2":
        key, _, value = facts["sharding"].words.partition(" ")
        why = "read as zero2; parameters rest sharded and are gathered in every micro-batch: more traffic"
        found.append(UnmappedOption(key, value, why))
    if str(settings.get(WRAP, "")).upper() == "SIZE_BASED_WRAP":
        why = "parameters are gathered by units of so many elements; read as one unit per layer"
        key = settings.label(WRAP)
        found.append(UnmappedOption(key, str(settings.get("fsdp_min_num_params", ""))[:80], why))
    return found
