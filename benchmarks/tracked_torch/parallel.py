"""Tensor parallelism, recomputation and FSDP2 around a decoder, in the order and with the units of torchtitan 0.3.

Sequences are cut over tp outside of attention and feed-forward; the head's logits stay cut by the vocabulary.
Embedding, every layer, and final norm with head are units of their own; with a tied table embedding, norm and head are
one, here the model's own. Only layers and embedding are freed after the forward pass (torchtitan's
``distributed/fsdp.py``, ``default``). Selective recomputation is torchtitan's (``activation_checkpoint.py``): results
of attention, of every second product, and of all products with a bias are kept.
"""

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    parallelize_module,
)
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

from tracked_torch.decoder import Decoder

aten = torch.ops.aten
PRODUCT = aten.mm.default
KEPT = (PRODUCT, aten.addmm.default, aten._scaled_dot_product_flash_attention_for_cpu.default)


def cut_over_tp(model: Decoder, mesh: DeviceMesh) -> None:
    """Cut products over tp and sequences between them."""
    whole = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
    rows = partial(RowwiseParallel, output_layouts=Shard(1))
    head = ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False)
    parallelize_module(model, mesh, {"output.head": head})
    table = model.embed.tokens
    table.weight = nn.Parameter(distribute_tensor(table.weight, mesh, [Shard(0)]))
    for layer in model.layers:
        column = ["attention.q", "attention.k", "attention.v", "mlp.up"]
        column += [] if layer.mlp.gate is None else ["mlp.gate"]
        plan: dict[str, Any] = {name: ColwiseParallel() for name in column}
        plan |= {name: rows() for name in ("attention.o", "mlp.down")}
        parallelize_module(layer, mesh, plan | {"attention": whole, "mlp": whole})


def recompute(model: Decoder, what: str) -> None:
    """Wrap every layer: ``none``, ``selective`` or ``full``."""
    options: dict[str, Any] = {"preserve_rng_state": False, "early_stop": False}
    if what == "selective":
        options["context_fn"] = lambda: create_selective_checkpoint_contexts(_every_second_product())
    if what != "none":
        for index, layer in enumerate(model.layers):
            model.layers[index] = checkpoint_wrapper(layer, **options)


def _every_second_product() -> Any:
    counts = {True: 0, False: 0}

    def policy(context: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        counts[context.is_recompute] += operator == PRODUCT
        kept = operator in KEPT and not (operator == PRODUCT and counts[context.is_recompute] % 2 == 0)
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

    return policy


def shard(model: Decoder, mesh: DeviceMesh, *, tied: bool) -> None:
    """Shard fp32 parameters; gathered ones are bf16, gradients are reduced in fp32."""
    types = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)
    unit = partial(fully_shard, mesh=mesh, mp_policy=types)
    for layer in model.layers:
        unit(layer)
    if not tied:
        unit(model.embed)
        unit(model.output, reshard_after_forward=False)
    unit(model)
