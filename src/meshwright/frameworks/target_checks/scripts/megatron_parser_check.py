"""Does Megatron itself accept an exported folder? ``megatron_parser_check.py FOLDER`` prints one JSON line.

The line is ``{"accepted": bool, "message": text, "values": {...}}``. ``launch.sh`` is run with a program in place of
``torchrun`` that only says what it was given; its words go through Megatron's own ``parse_args`` and ``validate_args``
as on that many ranks. No GPU is needed: what ``validate_args`` asks of one is answered with a Hopper's. Needs
megatron-core of the release, torch, numpy and packaging.
"""

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import torch
from launch_arguments import print_verdict, program_arguments

HOPPER = SimpleNamespace(major=9, minor=0, name="NVIDIA H100 80GB HBM3", total_memory=80 * 2**30)


def option(words: list[str], name: str) -> int:
    """Return the number after an option of torchrun."""
    return int(words[words.index(name) + 1])


def read_back(folder: Path) -> dict[str, object]:
    """Everything that Megatron understood. Raises whatever it raises."""
    words = program_arguments(folder / "launch.sh", "torchrun", {"MEGATRON_DIR": "."})
    ranks = option(words, "--nnodes") * option(words, "--nproc-per-node")
    torch.cuda.get_device_properties = lambda *_: HOPPER
    torch.cuda.get_device_capability = lambda *_: (HOPPER.major, HOPPER.minor)
    os.environ.update(WORLD_SIZE=str(ranks), RANK="0", CUDA_DEVICE_MAX_CONNECTIONS=connections(folder))
    program = next(i for i, word in enumerate(words) if word.endswith("pretrain_gpt.py"))
    sys.argv = words[program:]
    from megatron.training.arguments import parse_args, validate_args

    args = parse_args()
    args.world_size = ranks
    args = validate_args(args) or args
    names = (
        "tensor_model_parallel_size",
        "pipeline_model_parallel_size",
        "context_parallel_size",
        "expert_model_parallel_size",
        "expert_tensor_parallel_size",
        "virtual_pipeline_model_parallel_size",
        "data_parallel_size",
        "sequence_parallel",
        "micro_batch_size",
        "global_batch_size",
        "seq_length",
        "use_distributed_optimizer",
        "recompute_granularity",
        "num_layers",
        "hidden_size",
    )
    return {"ranks": ranks} | {name: getattr(args, name, None) for name in names}


def connections(folder: Path) -> str:
    """Return the variables that the launch script sets, with a node's own where it unsets them."""
    return "1" if "export CUDA_DEVICE_MAX_CONNECTIONS=1" in (folder / "launch.sh").read_text() else "8"


if __name__ == "__main__":
    print_verdict(read_back)
