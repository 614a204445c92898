"""Does torchtitan itself accept an exported folder? ``torchtitan_parser_check.py FOLDER`` prints one JSON line.

The line is ``{"accepted": bool, "message": text, "values": {...}}``. ``launch.sh`` is run with a program in place of
``torchrun`` that only says what it was given; its words go through torchtitan's own ``ConfigManager``, and its
``ParallelDims`` holds the degrees against that many ranks. Needs torchtitan, torch and triton; no GPU.
"""

from pathlib import Path

from launch_arguments import print_verdict, program_arguments
from torchtitan.config import ConfigManager
from torchtitan.distributed import ParallelDims


def option(words: list[str], name: str) -> int:
    """Return the number after an option of torchrun."""
    return int(words[words.index(name) + 1])


def read_back(folder: Path) -> dict[str, object]:
    """Everything that torchtitan understood. Raises whatever it raises."""
    words = program_arguments(folder / "launch.sh", "torchrun", {"TORCHTITAN_DIR": "."})
    ranks = option(words, "--nnodes") * option(words, "--nproc-per-node")
    config = ConfigManager().parse_args(words[words.index("torchtitan.train") + 1 :])
    p, training = config.parallelism, config.training
    dims = ParallelDims(
        dp_replicate=p.data_parallel_replicate_degree,
        dp_shard=p.data_parallel_shard_degree,
        cp=p.context_parallel_degree,
        tp=p.tensor_parallel_degree,
        pp=p.pipeline_parallel_degree,
        ep=p.expert_parallel_degree,
        world_size=ranks,
    )
    return {
        "ranks": ranks,
        **{axis: getattr(dims, axis) for axis in ("dp_replicate", "dp_shard", "cp", "tp", "pp", "ep")},
        "seq_len": training.seq_len,
        "local_batch_size": training.local_batch_size,
        "global_batch_size": training.global_batch_size,
        "schedule": p.pipeline_parallel_schedule,
        "reshard": p.fsdp_reshard_after_forward,
        "activation_checkpoint": type(config.activation_checkpoint).__qualname__,
    }


if __name__ == "__main__":
    print_verdict(read_back)
