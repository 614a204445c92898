"""Record collectives and memory of one Accelerate step: ``accelerate_dry_run.py FOLDER RANK CONFIG``.

The line is that of ``collective_recorder.py``. ``launch.sh`` is run with a program in place of ``accelerate`` that
only says what it was given; its parser, its configuration and the environment that it would hand to its processes
make an ``Accelerator``, which prepares a model of transformers that is made from CONFIG, a ``config.json``. Replaced
are, in this process alone:

* how processes meet, and the device, which is the CPU;
* the spreading of weights from the first rank (``fsdp_cpu_ram_efficient_loading``): there are none;
* the optimizer's change of parameters to their pieces, which goes by their addresses: it is made after the wrapping;
* transformers' ``Trainer``: its loop is written out here with batches of zeros, and its default clipping at 1.

Refused are, each by name: plain data parallelism (the reducer of ``DistributedDataParallel`` reads gradients), tensor
parallelism (transformers cuts a model inside from_pretrained, which wants weights), context parallelism (torch's has
no kernel for the CPU). Needs accelerate, transformers and a CPU build of torch.
"""

import json
import os
import sys
from pathlib import Path

import accelerate.utils.fsdp_utils as fsdp_utils
import torch
from accelerate import Accelerator
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.state import DistributedType, PartialState
from accelerate.utils import GradientAccumulationPlugin
from accelerate.utils.launch import prepare_multi_gpu_env
from collective_recorder import (
    Counted,
    DryRunUnsupportedError,
    Recorder,
    fake_tensors,
    local_elements,
    report,
    row_elements,
    start,
)
from launch_arguments import program_arguments
from transformers import AutoConfig, AutoModelForCausalLM, HfArgumentParser, TrainingArguments

REFUSED = {
    "plain data parallelism": "DistributedDataParallel's reducer reads gradients, which have no elements here",
    "tp": "transformers cuts a model over tp inside from_pretrained, which wants weights",
    "cp": "torch's context parallelism has no kernel for the CPU",
}
CLIP_AT = 1.0


def refuse(name: str) -> None:
    """Say by name what can not be run."""
    raise DryRunUnsupportedError(f"{name}: {REFUSED[name]}")


def launched(folder: Path) -> tuple[object, object, int]:
    """Return the arguments that Accelerate's launcher and transformers' parser read, and the sequence length."""
    variables = {"TRAIN_SCRIPT": "train.py", "MASTER_PORT": "0"}
    words = program_arguments(folder / "launch.sh", "accelerate", variables)
    args, _, _ = _validate_launch_command(launch_command_parser().parse_args(words[1:]))
    if not args.use_fsdp:
        refuse("plain data parallelism")
    given = args.training_script_args
    length = next(int(given[given.index(n) + 1]) for n in ("--block_size", "--max_length") if n in given)
    return args, HfArgumentParser(TrainingArguments).parse_known_args(given)[0], length


def accelerator_of(args, training, rank: int) -> Accelerator:
    """Return the Accelerator that a process of the job would make."""
    os.environ.update(prepare_multi_gpu_env(args))
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(args.num_processes), LOCAL_RANK="0")
    os.environ.update(ACCELERATE_TORCH_DEVICE="cpu", FSDP_CPU_RAM_EFFICIENT_LOADING="false")
    PartialState._prepare_backend = lambda *_, **__: ("fake", DistributedType.MULTI_GPU)
    PartialState.set_device = lambda self: setattr(self, "device", torch.device("cpu"))
    more = json.loads(training.accelerator_config or "{}").get("gradient_accumulation_kwargs", {})
    plugin = GradientAccumulationPlugin(num_steps=training.gradient_accumulation_steps, **more)
    made = Accelerator(gradient_accumulation_plugin=plugin)
    sizes = made.parallelism_config
    for axis in ("tp", "cp"):
        if getattr(sizes, f"{axis}_size") > 1:
            refuse(axis)
    return made


def model_of(config: Path) -> torch.nn.Module:
    """Return the model of a ``config.json``, without weights."""
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(config))


def step_of(accelerator: Accelerator, model, optimizer, training, length: int) -> None:
    """One optimizer step in the order of transformers' Trainer."""
    tokens = torch.zeros(training.per_device_train_batch_size, length, dtype=torch.int64)
    for _ in range(training.gradient_accumulation_steps):
        with accelerator.accumulate(model):
            accelerator.backward(model(input_ids=tokens, labels=tokens, use_cache=False).loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), CLIP_AT)
                optimizer.step()


def run(folder: Path, rank: int, recorder: Recorder) -> Counted:
    """Run a step of one rank. Raises whatever Accelerate and transformers raise."""
    args, training, length = launched(folder)
    start(rank, args.num_processes)
    accelerator = accelerator_of(args, training, rank)
    model = model_of(Path(sys.argv[3]))
    fsdp_utils.fsdp2_switch_optimizer_parameters = lambda *_: None
    import accelerate.accelerator as home

    home.fsdp2_switch_optimizer_parameters = lambda *_: None
    model, _ = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
    held = list(model.parameters())
    counted = Counted(local_elements(held), 0, row_elements(held))
    with fake_tensors():
        model.to_empty(device="cpu")
        optimizer = torch.optim.AdamW(model.parameters())
        with recorder:
            step_of(accelerator, model.train(), optimizer, training, length)
        counted.optimizer = local_elements(state["exp_avg"] for state in optimizer.state.values())
    return counted


if __name__ == "__main__":
    report(run)
