"""Load a checkpoint with megatron-core's own reader, for the Python of ``bash scripts/parsers.sh megatron``.

    python megatron_reader_program.py CHECKPOINT JOB OUTPUT

JOB is JSON: ``config`` (fields of TransformerConfig), ``model`` (arguments of GPTModel), ``tokens``. OUTPUT is an
archive of torch: logits, all tensors by key, and the states of its distributed optimizer. No GPU is needed.
"""

import json
import sys
import tempfile
import warnings

warnings.filterwarnings("ignore")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from megatron.core import dist_checkpointing, parallel_state  # noqa: E402
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig  # noqa: E402
from megatron.core.models.gpt.gpt_layer_specs import (  # noqa: E402
    get_gpt_decoder_block_spec,
    get_gpt_layer_local_spec,
)
from megatron.core.models.gpt.gpt_model import GPTModel  # noqa: E402
from megatron.core.optimizer import OptimizerConfig, distrib_optimizer, get_megatron_optimizer  # noqa: E402
from megatron.core.tensor_parallel.random import initialize_rng_tracker  # noqa: E402
from megatron.core.transformer.transformer_config import TransformerConfig  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402

LR, MIN_LR = 1e-3, 1e-4
PLAIN = {
    "hidden_dropout": 0.0,
    "attention_dropout": 0.0,
    "use_cpu_initialization": True,
    "bias_activation_fusion": False,
    "bias_dropout_fusion": False,
    "masked_softmax_fusion": False,
    "apply_rope_fusion": False,
    "gradient_accumulation_fusion": False,
    "moe_token_dispatcher_type": "allgather",
}
ACTIVATIONS = {"silu": functional.silu, "gelu-tanh": lambda x: functional.gelu(x, approximate="tanh")}


def gpt_model(job):
    """The model of a job in single precision, without Transformer Engine."""
    config = dict(job["config"])
    config["activation_func"] = ACTIVATIONS[config["activation_func"]]
    made = TransformerConfig(**PLAIN, **config)
    if isinstance(made.moe_layer_freq, list):
        spec = get_gpt_decoder_block_spec(made, use_transformer_engine=False)
    else:
        spec = get_gpt_layer_local_spec(
            num_experts=made.num_moe_experts,
            moe_grouped_gemm=False,
            qk_layernorm=made.qk_layernorm,
            normalization=made.normalization,
        )
    return GPTModel(made, spec, **job["model"]).eval()


def logits_of(model, tokens):
    """Logits of a batch under causal attention."""
    length = tokens.shape[1]
    mask = torch.ones(length, length, dtype=torch.bool).triu(1)[None, None]
    positions = torch.arange(length).expand_as(tokens)
    with torch.no_grad():
        return model(tokens, positions, mask)


class HostAsCuda(TorchFunctionMode):
    """Takes the host for a GPU: tensors for ``cuda`` are made there, and tensors there say that they are of CUDA."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        named = dict(kwargs or {})
        if str(named.get("device")).startswith("cuda"):
            named["device"] = "cpu"
        result = func(*args, **named)
        if func is torch.Tensor.type and isinstance(result, str):
            return result.replace("torch.", "torch.cuda.")
        return result


class StepsInGroups(torch.optim.AdamW):
    """Adam with the number of steps in its groups, as the fused one of Transformer Engine that Megatron loads into."""

    def __setstate__(self, state):
        torch.optim.Optimizer.__setstate__(self, state)


def distributed_adam(model):
    """The distributed optimizer of a model, made inside of ``HostAsCuda``."""
    torch.cuda.current_device = lambda: "cpu"
    layout = DistributedDataParallelConfig(use_distributed_optimizer=True)
    parallel = DistributedDataParallel(model.config, layout, model)
    config = OptimizerConfig(optimizer="adam", lr=LR, min_lr=MIN_LR, use_distributed_optimizer=True)
    optimizer = get_megatron_optimizer(config, [parallel])
    for part in optimizer.chained_optimizers:  # moments exist behind a step
        for group in part.optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = torch.zeros_like(parameter)
        part.optimizer.step()
        part.optimizer.__class__ = StepsInGroups
        for state in part.optimizer.state.values():
            del state["step"]
    distrib_optimizer.HAVE_APEX_OR_TE = distrib_optimizer.USING_TE_OPTIMIZER = True
    return optimizer


def optimizer_states(optimizer, model):
    """Moments, master copy and steps of each parameter of a model by its name."""
    found = {}
    for part in optimizer.chained_optimizers:
        for name, parameter in model.named_parameters():
            if parameter in part.model_param_group_index_map:
                group, place = part.model_param_group_index_map[parameter]
                master = part.optimizer.param_groups[group]["params"][place]
                state = part.optimizer.state[master]
                found[name] = {key: of.detach().view(parameter.shape) for key, of in state.items()}
                found[name] |= {
                    "param": master.detach().view(parameter.shape),
                    "step": part.optimizer.param_groups[group]["step"],
                }
    return found


def main(path, job, output):
    """Load weights and moments as a training of Megatron does."""
    model = gpt_model(job)
    plain = dist_checkpointing.load_plain_tensors(path)
    common = dist_checkpointing.load_common_state_dict(path)
    form = {**common["content_metadata"], "dp_cp_group": parallel_state.get_data_parallel_group()}
    with HostAsCuda():
        optimizer = distributed_adam(model)
        weights = model.sharded_state_dict(metadata=dict(form))
        asked = {
            "model": weights,
            "optimizer": optimizer.sharded_state_dict(weights, is_loading=True, metadata=form),
        }
        loaded = dist_checkpointing.load(asked, path)
        optimizer.load_state_dict(loaded["optimizer"])
    model.load_state_dict(loaded["model"])
    with HostAsCuda():
        logits = logits_of(model, torch.tensor(job["tokens"]))
    torch.save(
        {
            "logits": logits,
            "plain": {key: of.detach() for key, of in plain.items() if isinstance(of, torch.Tensor)},
            "optimizer": optimizer_states(optimizer, model),
            "iteration": common["iteration"],
            "layers": common["args"].num_layers,
        },
        output,
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", store=dist.FileStore(f"{folder}/store", 1), rank=0, world_size=1)
        parallel_state.initialize_model_parallel()
        initialize_rng_tracker(inference_rng_tracker=True)  # without dropout nothing is drawn
        main(sys.argv[1], json.loads(sys.argv[2]), sys.argv[3])
        dist.destroy_process_group()
