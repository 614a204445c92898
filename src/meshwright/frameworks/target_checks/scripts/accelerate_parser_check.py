"""Does Accelerate itself accept an exported folder? ``accelerate_parser_check.py FOLDER`` prints one JSON line.

The line is ``{"accepted": bool, "message": text, "values": {...}}``. ``launch.sh`` is run with a program in place of
``accelerate`` that only says what it was given. That goes the whole way of ``accelerate launch`` up to the start of
processes: its parser, its reading of ``config.yaml``, the environment that it would hand to them; then the plugins
that a process makes of that environment, the rules by which an ``Accelerator`` holds sizes against processes, and the
parser of transformers' ``TrainingArguments``. Needs accelerate, transformers and a CPU build of torch.
"""

import argparse
import os
from pathlib import Path
from types import SimpleNamespace

from accelerate import ParallelismConfig
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from accelerate.utils.launch import prepare_multi_gpu_env, prepare_simple_launcher_cmd_env
from launch_arguments import print_verdict, program_arguments
from transformers import HfArgumentParser, TrainingArguments


def environment(args: argparse.Namespace) -> dict[str, str]:
    """Return the environment that ``accelerate launch`` would give its processes."""
    if args.multi_gpu or args.use_fsdp:
        return prepare_multi_gpu_env(args)
    return prepare_simple_launcher_cmd_env(args)[1]


def fsdp_values() -> dict[str, object]:
    """Return the FSDP plugin that a process makes from its environment."""
    plugin = FullyShardedDataParallelPlugin()
    return {
        "fsdp_version": plugin.fsdp_version,
        "reshard_after_forward": plugin.reshard_after_forward,
        "recompute": bool(plugin.activation_checkpointing),
        "wrapped": plugin.auto_wrap_policy is not None,
        "offload": type(plugin.cpu_offload).__name__ == "CPUOffloadPolicy",
    }


def mesh_values(args: argparse.Namespace) -> dict[str, object]:
    """Return the sizes of a process after an Accelerator's own rules."""
    config = ParallelismConfig()
    kind = DistributedType.FSDP if args.use_fsdp else DistributedType.MULTI_GPU
    accelerator = SimpleNamespace(
        multi_device=args.multi_gpu,
        num_processes=args.num_processes,
        is_fsdp2=args.use_fsdp,
        distributed_type=kind,
        is_main_process=True,
    )
    config._validate_accelerator(accelerator)
    axes = ("dp_replicate", "dp_shard", "tp", "cp", "sp")
    return {axis: getattr(config, f"{axis}_size") for axis in axes} | {"total": config.total_size}


def trainer_values(words: list[str]) -> dict[str, object]:
    """Batch and recomputation as TrainingArguments read them; the script's own options are left over."""
    found, _ = HfArgumentParser(TrainingArguments).parse_known_args(words)
    names = ("per_device_train_batch_size", "gradient_accumulation_steps", "gradient_checkpointing", "optim")
    return {name: getattr(found, name) for name in (*names, "accelerator_config", "max_steps")}


def read_back(folder: Path) -> dict[str, object]:
    """Everything that Accelerate understood. Raises whatever it raises."""
    variables = {"TRAIN_SCRIPT": "train.py", "MASTER_PORT": "0"}
    words = program_arguments(folder / "launch.sh", "accelerate", variables)
    args = launch_command_parser().parse_args(words[1:])
    args, _, _ = _validate_launch_command(args)
    os.environ.update(environment(args))
    values: dict[str, object] = {
        "num_processes": args.num_processes,
        "num_machines": args.num_machines,
        "mixed_precision": args.mixed_precision,
        **trainer_values(args.training_script_args),
    }
    if args.use_fsdp:
        values |= fsdp_values()
    if args.use_parallelism_config:
        values |= mesh_values(args)
    return values


if __name__ == "__main__":
    print_verdict(read_back)
