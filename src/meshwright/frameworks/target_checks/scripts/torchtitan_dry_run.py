"""Record collectives and memory of one torchtitan step: ``torchtitan_dry_run.py FOLDER RANK``.

The line is that of ``collective_recorder.py``. ``launch.sh`` is run with a program in place of ``torchrun`` that
only says what it was given; the configuration, the meshes, the model, ``parallelize_fn``, the pipeline, the loss,
the optimizer and the bodies of ``Trainer``'s forward and backward step are torchtitan's own. Replaced are, in this
process alone:

* the device, which is the CPU (torchtitan asks which one there is when it is imported);
* the inside of attention, which takes causal ``scaled_dot_product_attention`` and no masks: the CPU has neither a
  compiled flex kernel nor one for variable lengths, and what is sent does not depend on it;
* the first exchange of a pipeline, in which stages tell each other the shapes of what they will send: nobody answers
  here, so every stage is told them;
* ``Trainer.__init__`` and the reading of data: batches are of zeros, and nothing is logged.

Needs torchtitan with torch 2.14 or newer (FSDP of earlier ones does not know torchtitan's default backend,
``spmd_types``). No GPU.
"""

import os
from pathlib import Path

import torch
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

import torchtitan.tools.utils as titan_device  # isort: skip

titan_device.device_type, titan_device.device_module = "cpu", torch.cpu

from torch.distributed.fsdp._fully_shard import _fsdp_param  # noqa: E402
from torch.distributed.pipelining._utils import InferenceMode, extract_tensor_metas  # noqa: E402
from torch.distributed.pipelining.schedules import _PipelineSchedule  # noqa: E402
from torchtitan.components.loss import ChunkedLossWrapper  # noqa: E402
from torchtitan.config import TORCH_DTYPE_MAP, ConfigManager  # noqa: E402
from torchtitan.distributed import ParallelDims  # noqa: E402
from torchtitan.distributed import utils as dist_utils  # noqa: E402
from torchtitan.models.common.attention import FlexAttention, VarlenAttention  # noqa: E402
from torchtitan.models.common.decoder import Decoder  # noqa: E402
from torchtitan.trainer import Trainer  # noqa: E402

WITHOUT = (
    "torch {} does not know torchtitan's default backend, spmd_types: scripts/parsers.sh installs torch 2.14"
)
EXPERTS = "expert_parallel_degree {}: what goes to whom is data, and a tensor without elements has none"


def option(words: list[str], name: str) -> int:
    """Return the number after an option of torchrun."""
    return int(words[words.index(name) + 1])


def attend(self, q_BLNH, k_BLNH, v_BLNH, *, attention_masks=None, scale=None, out_transform=None, **_):
    """Causal attention in place of kernels that the CPU lacks; ``out_transform`` also wants each row's log-sum."""
    heads_first = [tensor.transpose(1, 2) for tensor in (q_BLNH, k_BLNH, v_BLNH)]
    out = torch.nn.functional.scaled_dot_product_attention(*heads_first, scale=scale, enable_gqa=True)
    out_BLNH = out.transpose(1, 2)
    return out_transform(out_BLNH, q_BLNH.float().sum(-1)) if out_transform else out_BLNH


def set_stage_shapes(self, stages, *_) -> None:
    """Every stage knows the shapes of what comes: tokens into the first, hidden states everywhere else."""
    for stage in stages:
        tokens, hidden = stage.submod.dry_shapes
        inputs = (torch.empty(tokens, dtype=torch.int64) if stage.is_first else hidden(),)
        outputs = (hidden(),)
        stage._user_meta.inputs = extract_tensor_metas(inputs)
        stage._user_meta.outputs = extract_tensor_metas(outputs)
        stage._inference_mode = InferenceMode.STATIC


def trainer_of(config, ranks: int) -> Trainer:
    """Return a Trainer as its ``__init__`` would leave it, without data, logs, checkpoints and a device."""
    made = Trainer.__new__(Trainer)
    made.config, made.device = config, torch.device("cpu")
    made.parallel_dims = dims = ParallelDims.from_config(config.parallelism, ranks)
    dims.build_mesh()
    dist_utils.set_spmd_backend(config.parallelism.spmd_backend)
    made.model_config = config.model_spec.model
    made.model_config.update_from_config(config=config)
    with torch.device("meta"):
        model = made.model_config.build()
    made.loss_fn = config.loss.build(compile_config=config.compile)
    parallelize_model(made, model)
    made.train_context = dist_utils.get_spmd_context(parallel_dims=dims, spmd_typechecking=False)
    made.fwd_bwd_fn, made.ntokens_seen, made.step = made._forward_backward_body, 0, 1
    return made


def parallelize_model(made: Trainer, model: torch.nn.Module) -> None:
    """Cut the model over the ranks, by torchtitan's own functions."""
    config, spec = made.config, made.config.model_spec
    named = {
        "parallel_dims": made.parallel_dims,
        "training": config.training,
        "parallelism": config.parallelism,
        "compile_config": config.compile,
        "ac_config": config.activation_checkpoint,
        "dump_folder": os.devnull,
    }
    made.pp_has_first_stage = made.pp_has_last_stage = True
    if not made.parallel_dims.pp_enabled:
        made.model_parts = [spec.parallelize_fn(model, **named)]
        return
    made.pp_schedule, made.model_parts, made.pp_has_first_stage, made.pp_has_last_stage = spec.pipelining_fn(
        model,
        **named,
        device=made.device,
        model_config=made.model_config,
        parallelize_fn=spec.parallelize_fn,
        loss_fn=made.loss_fn,
    )
    for part in made.model_parts:
        part.dry_shapes = stage_shapes(config)


def stage_shapes(config):
    """Return the tokens of the first stage, and a function that makes the tensors between stages."""
    degrees, training = config.parallelism, config.training
    batch, length = (
        degrees.pipeline_parallel_microbatch_size,
        training.seq_len // degrees.context_parallel_degree,
    )
    cut = degrees.tensor_parallel_degree if degrees.enable_sequence_parallel else 1
    shape = (batch, length // cut, config.model_spec.model.dim)
    dtype = TORCH_DTYPE_MAP[training.mixed_precision_param]
    return (batch, length), lambda: torch.empty(shape, dtype=dtype, requires_grad=True)


def own_loss(made: Trainer) -> None:
    """Find the output layer, which a loss over chunks of logits holds itself."""
    if isinstance(made.loss_fn, ChunkedLossWrapper) and made.pp_has_last_stage:
        last = made.model_parts[-1]
        made.loss_fn.set_lm_head(last.lm_head)
        last._skip_lm_head = True


def step_of(made: Trainer) -> None:
    """One optimizer step, in the order of ``Trainer.train_step``."""
    dims, training = made.parallel_dims, made.config.training
    batches = made.config.parallelism.pipeline_parallel_microbatch_size if dims.pp_enabled else 0
    rows, groups = batches or training.local_batch_size, batches and training.local_batch_size // batches
    valid = torch.tensor(0, dtype=torch.int64)
    if dims.dp_enabled:
        valid = dist_utils.dist_sum_tensor(valid, dims.get_mesh("batch"))
    replicas = dims.dp_replicate * dims.dp_shard
    for _ in range(training.global_batch_size // (training.local_batch_size * replicas)):
        pairs = [batch(rows, training.seq_len, placed=dims.cp_enabled) for _ in range(groups or 1)]
        inputs, labels = zip(*pairs, strict=True)
        given = {"input_dict": list(inputs), "labels": list(labels)}
        if not groups:
            given = {"input_dict": inputs[0], "labels": labels[0]}
        made.forward_backward_step(**given, global_valid_tokens=valid)
    parameters = [p for part in made.model_parts for p in part.parameters()]
    dist_utils.clip_grad_norm_(
        parameters,
        training.max_norm,
        foreach=True,
        pp_mesh=dims.get_optional_mesh("pp"),
        ep_enabled=dims.ep_enabled,
    )
    made.optimizers.step()


def batch(rows: int, length: int, *, placed: bool) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Return a data loader's batch, all zeros; ``placed``: with positions, which context parallelism cuts."""
    tokens = torch.zeros(rows, length, dtype=torch.int64)
    positions = {"positions": torch.zeros_like(tokens)} if placed else {}
    return {"input": tokens, **positions}, torch.zeros_like(tokens)


def run(folder: Path, rank: int, recorder: Recorder) -> Counted:
    """Run a step of one rank. Raises whatever torchtitan raises."""
    if not hasattr(_fsdp_param.FSDPParam, "_resolve_spmd_types_for_storage"):
        raise DryRunUnsupportedError(WITHOUT.format(torch.__version__))
    words = program_arguments(folder / "launch.sh", "torchrun", {"TORCHTITAN_DIR": "."})
    ranks = option(words, "--nnodes") * option(words, "--nproc-per-node")
    config = ConfigManager().parse_args(words[words.index("torchtitan.train") + 1 :])
    if config.parallelism.expert_parallel_degree > 1:
        raise DryRunUnsupportedError(EXPERTS.format(config.parallelism.expert_parallel_degree))
    FlexAttention.forward = VarlenAttention.forward = attend
    _PipelineSchedule._warmup_p2p = set_stage_shapes
    Decoder.get_attention_masks = lambda *_, **__: None
    start(rank, ranks)
    torch.autograd.set_multithreading_enabled(False)
    made = trainer_of(config, ranks)
    parameters = [p for part in made.model_parts for p in part.parameters()]
    counted = Counted(local_elements(parameters), 0, row_elements(parameters))
    with fake_tensors():
        for part in made.model_parts:
            part.to_empty(device="cpu")
            part.train()
        own_loss(made)
        made.optimizers = config.optimizer.build(model_parts=made.model_parts)
        with recorder:
            step_of(made)
        states = (s for o in made.optimizers for s in o.state.values())
        counted.optimizer = local_elements(state["exp_avg"] for state in states)
    return counted


if __name__ == "__main__":
    report(run)
