"""Record collectives and memory of one DeepSpeed step: ``deepspeed_dry_run.py FOLDER RANK CONFIG``.

The line is that of ``collective_recorder.py``. ``launch.sh`` is run with a program in place of ``torchrun`` that
only says what it was given; ``ds_config.json`` goes to ``deepspeed.initialize`` with a model of transformers that is
made from CONFIG, a ``config.json``, and the engine takes a step of as many micro-batches as the file says. Replaced
are, in this process alone:

* the accelerator, which is DeepSpeed's own for CPUs, without its shared-memory kernels, which would be compiled;
* what the engine reads off a tensor (is there an overflow? what is the norm?): nothing is ever there, numbers are 1
  and counts 0, answers are no;
* ZeRO-3's comparison of lists of numbers with those of the first rank, which no rank answers;
* moving a model to its device, where it is already, and its change to bf16, in which it is made.

Under ZeRO-3 the step is the second one: a training's first micro-batch only records which modules come, and gathers
again what later ones keep until its next use.

Refused are, each by name: AutoTP, which spreads and reduces otherwise than a plan's tp, and AutoEP, whose exchanges
depend on data. Needs deepspeed, transformers and a CPU build of torch.
"""

import json
import os
import sys
from pathlib import Path

os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed
import deepspeed.comm.torch as deepspeed_torch
import torch
from collective_recorder import (
    Counted,
    DryRunUnsupportedError,
    Recorder,
    fake_tensors,
    local_elements,
    report,
    start,
)
from deepspeed.runtime.zero import parameter_offload, partition_parameters, partitioned_param_coordinator
from launch_arguments import program_arguments
from transformers import AutoConfig, AutoModelForCausalLM, HfArgumentParser, TrainingArguments

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
OPTIMIZERS = {"adamw_torch": torch.optim.AdamW, "sgd": torch.optim.SGD}
COMPARISONS = ("assert_ints_same_as_other_ranks", "assert_lst_len_same_as_other_ranks", "get_lst_from_rank0")
REFUSED = {
    "tensor_parallel": "AutoTP keeps an untied table whole and reduces the input gradient of each cut layer by itself, "
    "five in a layer where a plan has two: what that adds is in no Program yet",
    "expert_parallel": "AutoEP's exchanges depend on data, and there is none",
}


def option(words: list[str], name: str) -> str:
    """Return the value after an option."""
    return words[words.index(name) + 1]


def patch_tensor_reads() -> None:
    """Answers in place of what would be read off tensors without elements, and of other ranks."""
    torch.Tensor.item = lambda self: 1.0 if self.is_floating_point() else 0
    torch.Tensor.__bool__ = lambda self: False
    torch.Tensor.__float__ = lambda self: 1.0
    torch.Tensor.__int__ = lambda self: 0
    for module in (
        partition_parameters,
        partitioned_param_coordinator,
        parameter_offload,
        deepspeed.runtime.zero.utils,
    ):
        for name in COMPARISONS:
            if hasattr(module, name):
                setattr(module, name, lambda *_: None)
    deepspeed_torch.build_shm_op = lambda: None
    for name in ("to", "bfloat16", "half"):
        setattr(torch.nn.Module, name, lambda self, *_, **__: self)


def model_of(config: Path, ds_config: dict, training) -> torch.nn.Module:
    """Return the model of a ``config.json`` without weights, in the engine's precision."""
    dtype = next((DTYPES[name] for name in DTYPES if ds_config[name]["enabled"]), torch.float32)
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(config), dtype=dtype)
    type(model).to = torch.nn.Module.to
    if training.gradient_checkpointing:
        model.gradient_checkpointing_enable()
    return model.train()


def held(parameter: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of a parameter: under ZeRO-3 its piece."""
    return getattr(parameter, "ds_tensor", parameter)


def step_of(engine, training, length: int) -> None:
    """One optimizer step: the engine itself knows which micro-batch is the last."""
    tokens = torch.zeros(training.per_device_train_batch_size, length, dtype=torch.int64)
    for _ in range(engine.gradient_accumulation_steps()):
        engine.backward(engine(input_ids=tokens, labels=tokens, use_cache=False).loss)
        engine.step()


def run(folder: Path, rank: int, recorder: Recorder) -> Counted:
    """Run a step of one rank. Raises whatever DeepSpeed and transformers raise."""
    words = program_arguments(folder / "launch.sh", "torchrun", {"TRAIN_SCRIPT": "train.py"})
    ranks = int(option(words, "--nnodes")) * int(option(words, "--nproc-per-node"))
    ds_config = json.loads(Path(option(words, "--deepspeed")).read_text(encoding="utf-8"))
    for name in set(REFUSED) & set(ds_config):
        raise DryRunUnsupportedError(f"{name}: {REFUSED[name]}")
    training = HfArgumentParser(TrainingArguments).parse_known_args(words)[0]
    length = int(option(words, "--block_size" if "--block_size" in words else "--max_length"))
    start(rank, ranks)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK="0")
    patch_tensor_reads()
    with fake_tensors():
        model = model_of(Path(sys.argv[3]), ds_config, training)
        optimizer = OPTIMIZERS[training.optim](model.parameters())
        engine, *_ = deepspeed.initialize(
            model=model, optimizer=optimizer, config=ds_config, dist_init_required=False
        )
        counted = Counted(local_elements(map(held, model.parameters())), 0, 0)
        if engine.zero_optimization_partition_weights():
            step_of(engine, training, length)
        with recorder:
            step_of(engine, training, length)
        states = optimizer.state.values()
        counted.optimizer = local_elements(state["exp_avg"] for state in states if "exp_avg" in state)
        counted.rows = ranks * len(list(model.parameters()))
    return counted


if __name__ == "__main__":
    report(run)
