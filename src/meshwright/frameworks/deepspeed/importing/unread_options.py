"""Keys of a DeepSpeed configuration that change the step's time or memory and that a plan has no word for."""

from collections.abc import Mapping

from meshwright.frameworks.deepspeed.options import CP, LOW_MASTER, LOW_MOMENTS, STAGE, STAGES, ZERO
from meshwright.frameworks.importing.config_values import ConfigValues
from meshwright.frameworks.importing.imported_file import UnmappedOption

NVME = "states on NVMe are not priced: less memory and a longer step than predicted"
OFFLOAD = "offload is not priced: less memory and a longer step than predicted"
QUANTISED = "quantised traffic is not priced: a shorter step than predicted"
LOW_STATES = (
    "the optimizer's states are counted in 32 bit; a plan has 16-bit states without a copy of the parameters, as both "
    "keys have them under stage 3"
)
OWN_CODE = (
    "takes effect where the model's code calls deepspeed.checkpointing; recomputation is not in the file"
)
WHY: Mapping[str, str] = {
    f"{ZERO}.offload_optimizer.device": NVME,
    f"{ZERO}.offload_param.device": NVME,
    f"{ZERO}.zenflow": OFFLOAD,
    f"{ZERO}.zero_quantized_weights": QUANTISED,
    f"{ZERO}.zero_quantized_gradients": QUANTISED,
    f"{ZERO}.zero_quantized_nontrainable_weights": "quantised weights are counted in 16 bit",
    f"{ZERO}.zero_hpz_partition_size": "hpZ keeps a second copy of the parameters inside so many ranks and gathers "
    "from it in the backward pass: more memory and less traffic than predicted",
    CP: "Ulysses exchanges heads by all-to-all; read as cp, which passes keys and values around",
    LOW_MASTER: LOW_STATES,
    LOW_MOMENTS: LOW_STATES,
    "fp16.fp16_master_weights_and_grads": LOW_STATES,
    "torch_autocast.enabled": "parameters stay in 32 bit and are cast at use; counted in 16 bit",
    "data_types.param_dtype": "parameters are counted in the precision of the run",
    "activation_checkpointing.partition_activations": OWN_CODE,
    "activation_checkpointing.cpu_checkpointing": OWN_CODE,
    "activation_checkpointing.number_checkpoints": OWN_CODE,
    "pipeline.activation_checkpoint_interval": "keeps one input for so many layers; read as one per layer",
    "tensor_parallel.tp_overlap_comm": "overlap of tp is not priced: a shorter step than predicted",
    "tensor_parallel.partition_config": "layers are cut as tp cuts them, not by these rules",
    "tensor_parallel.vocab_parallel_lm_head": "the loss sees the whole vocabulary",
    "use_data_before_expert_parallelism": "ep lies over neighbouring ranks",
    "compile.deepcompile": "compilation is not priced",
    "compile.offload_activation": OFFLOAD,
    "compile.offload_opt_states": OFFLOAD,
    "compile.offload_parameters": OFFLOAD,
    "hybrid_engine.enabled": "generation between steps is no part of a plan",
    "weight_quantization": "quantised weights are counted in 16 bit",
    "autotuning.enabled": "autotuning changes stage and batch",
    "data_efficiency.enabled": "data efficiency changes lengths and drops tokens: every sequence is counted whole",
}
OPTIMIZERS = ("adam", "adamw", "sgd")


def reads_low_states(settings: ConfigValues) -> bool:
    """Return true if all states are 16-bit and the parameters themselves are stepped, as a plan can say."""
    whole = settings.get(STAGE) == len(STAGES) - 1
    return whole and settings.get(LOW_MASTER) is True and settings.get(LOW_MOMENTS) is True


def unread_keys(settings: ConfigValues) -> tuple[UnmappedOption, ...]:
    """Keys of the file that no plan can express, except keys that DeepSpeed ignores."""
    ignored = {problem.field for problem in settings.problems if problem.severity == "warning"}
    read = (LOW_MASTER, LOW_MOMENTS) if reads_low_states(settings) else ()
    found = [
        UnmappedOption(key, str(settings.get(key))[:80], why)
        for key, why in WHY.items()
        if settings.on(key)
        and key not in (*ignored, *read)
        and not (why == NVME and settings.get(key) == "cpu")
    ]
    optimizer = str(settings.get("optimizer.type", "adam"))
    if optimizer.lower() not in OPTIMIZERS:
        found.append(UnmappedOption("optimizer.type", optimizer[:80], "states are counted as AdamW's"))
    return tuple(found)
