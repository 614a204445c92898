"""The common state of a Megatron checkpoint, which is all but its tensors, in the form of megatron-core 0.19.

``args`` are those that Megatron compares with a run's own, ``content_metadata`` tells the form of tensors,
``optimizer`` has the groups of its distributed optimizer (with ep a second one for experts), ``opt_param_scheduler``
the samples seen. A run that loads them needs the learning rates of before: groups are matched by them.
"""

from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from meshwright.errors import InputError
from meshwright.model.architecture import Architecture
from meshwright.runtime.checkpoint.formats.dcp_folder import DcpFolder, damage
from meshwright.runtime.checkpoint.formats.megatron_layout import padded_vocabulary
from meshwright.runtime.checkpoint.formats.restricted_unpickler import unpickled_archive
from meshwright.runtime.checkpoint.formats.whole_states import WholeStates
from meshwright.runtime.checkpoint.run_folder import in_short, read_errors
from meshwright.workload.optimizers.adamw import ADAMW
from meshwright.workload.optimizers.optimizer_kind import FIRST

COMMON, LEGACY = "common_state/shard_0_1", "common.pt"
"""The value of 0.19, and the file of releases before."""
FORM = "fully_reshardable"
VERSION = 3.0
"""Megatron's version of a checkpoint's content."""
SCHEDULES = {"cosine": "cosine", "linear": "linear", "constant": "constant", "wsd": "WSD"}
"""Megatron's names of the courses of the learning rate."""
MOST_COMMON_BYTES = 2**28


def common_state(states: WholeStates, arch: Architecture) -> dict[str, Any]:
    """Return the common state of a checkpoint."""
    batch = states.plan.get("global_batch")
    batch = batch if isinstance(batch, int) else 0
    moments = any(state == FIRST for state, _ in states.tensors)
    args = _arguments(states, arch, states.step * batch, moments=moments)
    common: dict[str, Any] = {
        "args": Namespace(**args),
        "checkpoint_version": VERSION,
        "iteration": states.step,
        "num_floating_point_operations_so_far": 0,
        "content_metadata": {
            "distrib_optim_sharding_type": FORM,
            "singleton_local_shards": False,
            "chained_optim_avoid_prefix": True,
        },
    }
    options = states.facts.get("options")
    if moments and isinstance(options, dict) and "lr" in options:
        apart = arch.moe is not None and states.plan.get("ep", 1) != 1
        common |= _optimizer(states.step, options, batch, experts_apart=apart)
    return common


def _arguments(states: WholeStates, arch: Architecture, samples: int, *, moments: bool) -> dict[str, Any]:
    """Return the arguments of Megatron's training that describe the model and the checkpoint."""
    found: dict[str, Any] = {
        "ckpt_format": "torch_dist",
        "world_size": 1,
        "tensor_model_parallel_size": 1,
        "pipeline_model_parallel_size": 1,
        "use_distributed_optimizer": True,
        "no_save_optim": not moments,
        "no_save_rng": True,
        "iteration": states.step,
        "consumed_train_samples": samples,
        "consumed_valid_samples": 0,
        "num_layers": arch.layers,
        "hidden_size": arch.hidden,
        "ffn_hidden_size": arch.intermediate or arch.hidden * 4,
        "num_attention_heads": arch.heads,
        "group_query_attention": arch.kv_heads != arch.heads,
        "num_query_groups": arch.kv_heads,
        "kv_channels": arch.head_dim,
        "max_position_embeddings": arch.max_positions,
        "add_position_embedding": arch.positions == "learned",
        "position_embedding_type": {"learned": "learned_absolute"}.get(arch.positions, arch.positions),
        "rotary_base": int(arch.rope_theta),
        "normalization": "LayerNorm" if arch.centred_norms else "RMSNorm",
        "norm_epsilon": arch.norm_epsilon,
        "swiglu": arch.gated,
        "add_bias_linear": arch.output_bias,
        "add_qkv_bias": arch.qkv_bias,
        "qk_layernorm": arch.qk_norm,
        "untie_embeddings_and_output_weights": not arch.tied_embeddings,
        "vocab_size": arch.vocab,
        "padded_vocab_size": padded_vocabulary(arch),
        "bf16": states.precision == "bf16",
    }
    if arch.moe is not None:
        found |= {
            "num_experts": arch.moe.experts,
            "moe_router_topk": arch.moe.experts_per_token,
            "moe_ffn_hidden_size": arch.moe.intermediate,
            "moe_layer_freq": 1 if all(arch.moe.layers) else [int(of) for of in arch.moe.layers],
        }
    return found


def _optimizer(step: int, options: Mapping[str, Any], batch: int, *, experts_apart: bool) -> dict[str, Any]:
    """Return the groups of the optimizer and the state of its learning rate."""
    rates = {"max_lr": options["lr"], "min_lr": options["lr"] * options.get("lr_floor", 0.0)}
    decay = options.get("weight_decay")
    decay = float(str(ADAMW.options["weight_decay"].default)) if decay is None else decay
    dense = _groups(step, rates, decay, experts=False)
    return {
        "optimizer": {0: dense, 1: _groups(step, rates, decay, experts=True)} if experts_apart else dense,
        "opt_param_scheduler": {
            **rates,
            "num_steps": step * batch,
            "lr_warmup_steps": options.get("warmup_steps", 0) * batch,
            "lr_decay_steps": max(1, options.get("steps", step) * batch),
            "lr_decay_style": SCHEDULES.get(str(options.get("schedule")), "constant"),
            "start_wd": decay,
            "end_wd": decay,
            "wd_incr_style": "constant",
            "wd_incr_steps": max(1, options.get("steps", step) * batch),
        },
    }


def _groups(step: int, rates: Mapping[str, float], decay: float, *, experts: bool) -> dict[str, Any]:
    """Return the state of one optimizer: a group with weight decay and one without."""
    groups = [
        {
            **rates,
            "lr": rates["max_lr"],
            "wd_mult": factor,
            "lr_mult": 1.0,
            "weight_decay": decay * factor,
            "is_decoupled_lr": False,
            "is_expert_parallel": experts,
            "default_config": True,
            "bias_correction": True,
            "step": step,
        }
        for factor in (1.0, 0.0)
    ]
    return {"optimizer": {"param_groups": groups}, "param_state_sharding_type": FORM}


def read_common(folder: DcpFolder) -> dict[str, Any]:
    """Return the common state of a checkpoint, classes as records. Raises InputError if there is none."""
    legacy = folder.path / LEGACY
    if legacy.is_file():
        with read_errors(legacy), legacy.open("rb") as file:
            found = unpickled_archive(file.read(MOST_COMMON_BYTES), in_short(legacy), trust=folder.trust)
    elif COMMON in folder.values:
        found = folder.value(COMMON)
        found = found[0] if isinstance(found, list) and found else found
    else:
        found = None
    if not isinstance(found, dict) or type(found.get("iteration", 0)) is not int:
        raise InputError(damage(legacy, f"is missing or no common state, and so is {COMMON}"))
    return found
