"""The bytes that element-wise kernels of the runtime move are those of the stack's ``elementwise_factor``."""

from collections import Counter
from dataclasses import replace

import pytest
import torch
from tiny_models import tiny
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from meshwright.cluster.load import load_cluster
from meshwright.cost.constants import constants
from meshwright.cost.operators.price_plans import program_prices
from meshwright.plans.forms.conversion import expand
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.resolve import resolve_with
from meshwright.program.lowering.lower_plan import lower
from meshwright.runtime.batch.rank_micro_batches import StepBatch, micro_batches
from meshwright.runtime.comm.communicator import Communicator
from meshwright.runtime.executor.rank import Job, loaded_rank
from meshwright.runtime.launch.launcher_environment import Place
from meshwright.runtime.weights.random_tensors import RandomTensors
from meshwright.stack.load import load_stack

TOKENS = 128
WIDE = {"hidden_size": 256, "intermediate_size": 768, "num_attention_heads": 4, "num_key_value_heads": 2}
PRODUCTS = ("mm", "attention")
VIEWS = (
    "view",
    "t",
    "transpose",
    "slice",
    "expand",
    "as_strided",
    "unsqueeze",
    "squeeze",
    "permute",
    "alias",
)
VIEWS += (
    "detach",
    "select",
    "empty",
    "empty_like",
    "empty_strided",
    "new_empty",
    "unsafe_view",
    "split",
    "unbind",
)


class MovedBytes(TorchDispatchMode):
    """Bytes of the tensors that element-wise kernels read and write; products and views do not count."""

    def __init__(self):
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, function, types, args=(), keywords=None):
        result = function(*args, **(keywords or {}))
        name = function._schema.name.partition("::")[2].strip("_")
        if not any(word in name for word in PRODUCTS) and name not in VIEWS:
            tensors = [of for of in tree_flatten((args, keywords, result))[0] if isinstance(of, torch.Tensor)]
            self.bytes += sum(of.numel() * of.element_size() for of in tensors)
        return result


def lowered(layers, sequences):
    """(program, setting) of a small Llama on one device."""
    model = tiny("llama", num_hidden_layers=layers, **WIDE)
    keys = {"plan": 1, "model": "tiny", "cluster": "h100-sxm-80gb x 1", "stack": "meshwright"}
    keys |= {"workload": {"seq_len": TOKENS, "global_batch": sequences}}
    plan = expand(ShortPlan.model_validate(keys), model.architecture)
    cluster = replace(load_cluster(plan.cluster), step_jitter=0.0)
    legal = resolve_with(plan, model, cluster, load_stack("meshwright"))
    setting = legal.setting
    return lower(legal.long, model, cluster, setting.workload, setting.stack), setting


def counted(layers, sequences):
    """Bytes of a training step."""
    program, setting = lowered(layers, sequences)
    communicator = Communicator(0, program, torch.device("cpu"))
    place, tensors = Place(0, 1, 0, "local"), RandomTensors(setting.model, seed=0)
    rank = loaded_rank(Job(program, setting.model), place, communicator, tensors)
    tokens = torch.arange(sequences * TOKENS).reshape(sequences, TOKENS) % setting.model.architecture.vocab
    with MovedBytes() as moved:
        rank.interpreter.step(micro_batches(program, 0, StepBatch(tokens, tokens), 1, communicator.device))
    return moved.bytes


def modelled(factor):
    """Bytes of a layer's forward and backward pass at a factor, as the cost model counts them."""
    program, setting = lowered(1, 1)
    prices = program_prices(
        replace(program, stack=replace(program.stack, elementwise_factor=factor)), setting
    )
    (layer,) = (at for at, block in enumerate(prices.blocks) if block.kind == "layer")
    seconds = sum(prices.block(layer, kind)["compute"] for kind in ("F", "B"))
    return seconds * constants()["hbm_efficiency"] * setting.cluster.pool.device.memory_bytes_per_s


def test_a_layer_moves_what_the_stack_says():
    """Of two sequences more and two layers more, less the sums of weight gradients: a pass that both count alike."""
    steps = Counter({(layers, n): counted(layers, n) for layers in (1, 3) for n in (1, 3)})
    moved = (steps[3, 3] - steps[1, 3] - steps[3, 1] + steps[1, 1]) / 4
    hidden, keys = WIDE["hidden_size"], 64 * WIDE["num_key_value_heads"]
    weights = hidden * (2 * hidden + 2 * keys + 3 * WIDE["intermediate_size"])
    ratio = (moved - 10 * weights) / (modelled(2.0) - modelled(1.0))
    assert ratio == pytest.approx(load_stack("meshwright").elementwise_factor, rel=0.05)
