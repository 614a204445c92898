"""Time the launches of one layer of the runtime, by training steps of very few tokens on a CPU.

Every rank trains two models that differ in layers, by itself but while all others do the same; the difference of their
steps is the time of the layers between, and what a step needs besides them drops out.
"""

from collections.abc import Iterator
from statistics import median
from time import perf_counter

import torch

from meshwright.cluster.load import load_cluster
from meshwright.measurement.outliers import robust_deviation
from meshwright.measurement.timing import Timing
from meshwright.model.families.architecture_table import read_architecture
from meshwright.model.operators.blocks import build_graph
from meshwright.plans.forms.conversion import expand
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.resolve import resolve_with
from meshwright.program.lowering.lower_plan import lower
from meshwright.runtime.batch.rank_micro_batches import StepBatch, micro_batches
from meshwright.runtime.comm.communicator import Communicator
from meshwright.runtime.executor.rank import CPU_THREADS, Job, loaded_rank
from meshwright.runtime.launch.launcher_environment import Place
from meshwright.runtime.weights.random_tensors import RandomTensors
from meshwright.stack.load import load_stack
from meshwright.stack.stack import OWN_STACK

FEW_LAYERS, MORE_LAYERS = 1, 3
TOKENS, MICRO_BATCHES, HIDDEN = 8, 8, 64
WARM_UP, FEWEST_PAIRS, MOST_PAIRS, SHORTEST_S = 2, 5, 50, 1e-6
CONFIG = {
    "model_type": "llama",
    "vocab_size": 64,
    "hidden_size": HIDDEN,
    "intermediate_size": 2 * HIDDEN,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": TOKENS,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}
PLAN = {
    "plan": 1,
    "model": "a few layers",
    "cluster": "h100-sxm-80gb x 1",
    "stack": OWN_STACK,
    "workload": {"seq_len": TOKENS, "global_batch": MICRO_BATCHES},
}
"""One device; which one does not matter to its Program."""


def layer_timing(budget_s: float) -> Timing:
    """Time forward and backward of a layer for one micro-batch on the CPU; five pairs of steps at least."""
    torch.set_num_threads(CPU_THREADS)
    began = perf_counter()
    few, more = _steps(FEW_LAYERS), _steps(MORE_LAYERS)
    for _ in range(WARM_UP):
        next(few), next(more)
    found: list[float] = []
    layers = MICRO_BATCHES * (MORE_LAYERS - FEW_LAYERS)
    while len(found) < FEWEST_PAIRS or (len(found) < MOST_PAIRS and perf_counter() - began < budget_s):
        found.append((next(more) - next(few)) / layers)
    return Timing(max(median(found), SHORTEST_S), robust_deviation(found), layers * len(found))


def _steps(layers: int) -> Iterator[float]:
    """Yield the seconds of training steps of a model with so many layers, without end."""
    model = build_graph(read_architecture(CONFIG | {"num_hidden_layers": layers}, "a few layers", "here"))
    plan = expand(ShortPlan.model_validate(PLAN), model.architecture)
    cluster, stack = load_cluster(plan.cluster), load_stack(plan.stack)
    legal = resolve_with(plan, model, cluster, stack)
    program = lower(legal.long, model, cluster, legal.setting.workload, stack)
    communicator = Communicator(0, program, torch.device("cpu"))
    place = Place(rank=0, ranks=1, local_rank=0, launcher="local")
    rank = loaded_rank(Job(program, model), place, communicator, RandomTensors(model, seed=0))
    tokens = torch.arange(MICRO_BATCHES * TOKENS).reshape(MICRO_BATCHES, TOKENS) % model.architecture.vocab
    batch = micro_batches(program, 0, StepBatch(tokens, tokens), tokens.numel(), communicator.device)
    while True:
        start = perf_counter()
        rank.interpreter.step(batch)
        yield perf_counter() - start
