"""Does DeepSpeed itself accept an exported folder? ``deepspeed_parser_check.py FOLDER`` prints one JSON line.

The line is ``{"accepted": bool, "message": text, "values": {...}}``. ``launch.sh`` is run with a program in place of
``torchrun`` that only says what it was given; ``ds_config.json`` is then read by ``DeepSpeedConfig`` as on that many
ranks (``get_world_size`` is replaced: no processes run), and AutoEP's own rules are applied. Needs deepspeed and a CPU
build of torch.
"""

from pathlib import Path

import deepspeed.comm
from deepspeed.module_inject.auto_ep_config import validate_autoep_config
from deepspeed.runtime.config import DeepSpeedConfig
from launch_arguments import print_verdict, program_arguments


def option(words: list[str], name: str) -> str:
    """Return the value after an option."""
    return words[words.index(name) + 1]


def read_back(folder: Path) -> dict[str, object]:
    """Everything that DeepSpeed understood. Raises whatever it raises."""
    words = program_arguments(folder / "launch.sh", "torchrun", {"TRAIN_SCRIPT": "train.py"})
    ranks = int(option(words, "--nnodes")) * int(option(words, "--nproc-per-node"))
    deepspeed.comm.get_rank = lambda *_, **__: 0
    deepspeed.comm.get_world_size = lambda *_, **__: ranks
    config = DeepSpeedConfig(option(words, "--deepspeed"))
    tp, experts = max(1, config.tensor_parallel_config.autotp_size), config.expert_parallel_config
    config.tensor_parallel_config.get_partition_config_object()
    validate_autoep_config(experts, ranks, 1, tp, 1, zero_stage=int(config.zero_optimization_stage))
    return {
        "ranks": ranks,
        "train_batch_size": config.train_batch_size,
        "train_micro_batch_size_per_gpu": config.train_micro_batch_size_per_gpu,
        "gradient_accumulation_steps": config.gradient_accumulation_steps,
        "per_device_train_batch_size": int(option(words, "--per_device_train_batch_size")),
        "stage": int(config.zero_optimization_stage),
        "overlap_comm": config.zero_config.overlap_comm,
        "bf16": config.bfloat16_config.enabled,
        "fp16": config.float16_config.enabled,
        "gradient_clipping": config.gradient_clipping,
        "tp": tp,
        "ep": experts.autoep_size if experts.enabled else 1,
    }


if __name__ == "__main__":
    print_verdict(read_back)
