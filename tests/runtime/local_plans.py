"""Small plans for the runtime, lowered, run on forked ranks, and held against plain PyTorch on one."""

import io
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist

from meshwright.cluster.fast_domains import in_nodes_of
from meshwright.cluster.load import load_cluster
from meshwright.model.encoder import TextEncoder, VisionEncoder
from meshwright.model.graph import ModelGraph
from meshwright.model.named_tensors import is_matrix, named_parameters
from meshwright.plans.forms.conversion import expand
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.layers.recompute_by_layer import with_layer_recomputes
from meshwright.program.lowering.lower_plan import lower
from meshwright.program.program import Program
from meshwright.runtime.batch import rank_micro_batches
from meshwright.runtime.batch.label_counts import divisor_of, labels_by_replica
from meshwright.runtime.executor.rank import Job, rank_of
from meshwright.runtime.launch.forked_ranks import run_locally
from meshwright.runtime.reference.decoder import reference_loss
from meshwright.runtime.state.shard_pieces import pieces_of, whole_tensors
from meshwright.runtime.state.step_options import StepOptions
from meshwright.runtime.weights.random_tensors import random_tensors
from meshwright.stack.load import load_stack
from meshwright.workload.images import Images
from meshwright.workload.optimizer_choice import ADAMW
from meshwright.workload.workload import Workload

SEQ_LEN = 24
ENCODER_TOKENS = 16
IMAGES = Images(per_sequence=2, tokens=24)


@dataclass(frozen=True)
class Small:
    model: ModelGraph
    program: Program
    global_batch: int


def small(
    model,
    pipeline=None,
    sharding="none",
    gather=None,
    recompute="none",
    recomputes=None,
    offload=None,
    global_batch=8,
    once=False,
    node=8,
    capacity=None,
    optimizer="adamw",
    **degrees,
) -> Small:
    """``recomputes`` are the layers' own choices, where they differ; copies of tokens go ``once`` between nodes."""
    ranks = 1
    for axis in ("pp", "dp_replicate", "dp_shard", "cp", "tp"):
        ranks *= degrees.get(axis, 1)
    data = {
        "plan": 1,
        "model": "tiny",
        "cluster": f"h100-sxm-80gb x {ranks}",
        "workload": {
            "seq_len": SEQ_LEN,
            "global_batch": global_batch,
            "capacity": capacity,
            "optimizer": optimizer,
        },
        "stack": "meshwright",
        "layout": degrees,
        "sharding": sharding,
        "pipeline": pipeline or {},
        "recompute": recompute,
    }
    if gather:
        data["gather"] = gather
    if offload:
        data["offload"] = offload
    plan = expand(ShortPlan.model_validate(data), model.architecture)
    plan = with_layer_recomputes(plan, recomputes) if recomputes else plan
    cluster = in_nodes_of(load_cluster(data["cluster"]), node)
    stack = replace(load_stack("meshwright"), deduplicates_exchange=once)
    own = plan.workload.optimizer_in_full
    workload = Workload(
        task="pretrain",
        seq_len=SEQ_LEN,
        global_batch=global_batch,
        optimizer=own,
        encoder_tokens=ENCODER_TOKENS if isinstance(model.architecture.encoder, TextEncoder) else None,
        images=IMAGES if isinstance(model.architecture.encoder, VisionEncoder) else None,
    )
    return Small(model, lower(plan, model, cluster, workload, stack), global_batch)


def batch(model, sequences, seed=1):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(model.architecture.vocab, (sequences, SEQ_LEN), generator=generator)
    labels = torch.randint(model.architecture.vocab, (sequences, SEQ_LEN), generator=generator)
    labels[torch.rand(labels.shape, generator=generator) < 0.1] = -100
    return tokens, labels


def encoder_input(model, sequences, seed=1):
    """What a model's encoder reads: token ids, patches, or nothing."""
    encoder, generator = model.architecture.encoder, torch.Generator().manual_seed(seed)
    if isinstance(encoder, TextEncoder):
        return torch.randint(model.architecture.vocab, (sequences, ENCODER_TOKENS), generator=generator)
    if encoder is None:
        return None
    size = (sequences, IMAGES.patches, encoder.patch_elements)
    return torch.randn(size, generator=generator, dtype=torch.float64)


def micro_batches(program, rank, tokens, labels, encoder=None):
    divisor = divisor_of(program, rank, labels, labels_by_replica(program, labels))
    device = torch.device("cpu")
    step = rank_micro_batches.StepBatch(tokens, labels, encoder=encoder)
    return rank_micro_batches.micro_batches(program, rank, step, divisor, device)


def run(case: Small, precision="fp64", steps=1, options=None, probe=None, keeps_gradients=True):
    """Losses, norms, whole gradients of the first step and whole parameters at the end; logs per rank."""
    program, model = case.program, case.model
    tensors = random_tensors(model, 0, torch.float64)
    batches = [
        (*batch(model, case.global_batch, seed), encoder_input(model, case.global_batch, seed))
        for seed in range(1, steps + 1)
    ]

    job = Job(program, model, precision, options or StepOptions(), 60.0)

    def work(place, store, tell):
        with rank_of(job, place, store, tensors) as rank:
            interpreter, units = rank.interpreter, rank.plan.all_units
            gradients, results = [], []
            probed = probe(interpreter) if probe else None

            def keep():
                if not results and keeps_gradients:
                    gradients.extend(p for unit in units for p in pieces_of(unit, unit.reduced))

            interpreter.states.before_step = keep
            for step in batches:
                results.append(interpreter.step(micro_batches(program, place.rank, *step)))
            parameters = [p for unit in units for p in pieces_of(unit, unit.owned)]
            out = io.BytesIO()
            torch.save((results, gradients, parameters, rank.communicator.log, probed), out)
            everyone = [None] * place.ranks
            dist.all_gather_object(everyone, out.getvalue())
            return everyone

    everyone = run_locally(work, program.parts.ranks, 120, lambda what, part: None)
    read = [torch.load(io.BytesIO(data), weights_only=False) for data in everyone]
    gradients = whole_tensors(p for _, found, *_ in read for p in found)
    parameters = whole_tensors(p for _, _, found, *_ in read for p in found)
    return read[0][0], gradients, parameters, [r[3] for r in read], [r[4] for r in read]


def reference(case: Small, steps=1, options=None):
    """The same in plain PyTorch."""
    options = options or StepOptions()
    values = options.for_optimizer(ADAMW, "")
    tensors = random_tensors(case.model, 0, torch.float64)
    trained = {name: tensors[name].requires_grad_() for name in named_parameters(case.model)}
    groups = [
        {
            "params": [t for name, t in trained.items() if is_matrix(name, t.shape)],
            "weight_decay": values["weight_decay"],
        },
        {"params": [t for name, t in trained.items() if not is_matrix(name, t.shape)], "weight_decay": 0.0},
    ]
    adam = torch.optim.AdamW(groups, lr=options.lr, betas=values["betas"], eps=values["epsilon"])
    results, gradients = [], {}
    for seed in range(1, steps + 1):
        tokens, labels = batch(case.model, case.global_batch, seed)
        adam.zero_grad()
        encoder = encoder_input(case.model, case.global_batch, seed)
        images = IMAGES if isinstance(case.model.architecture.encoder, VisionEncoder) else None
        counted = int((labels != -100).sum())
        loss = reference_loss(case.model, tensors, tokens, labels, counted, encoder=encoder, images=images)
        loss.backward()
        gradients = gradients or {n: t.grad.clone() for n, t in trained.items()}
        norm = torch.nn.utils.clip_grad_norm_(list(trained.values()), options.clip or float("inf"))
        adam.step()
        results.append((loss.item(), norm.item()))
    return results, gradients, {n: t.detach() for n, t in trained.items()}


def error(found, expected):
    largest = max(g.abs().max() for g in expected.values())
    return max(
        float((found[n] - g).abs().max() / max(g.abs().max(), 1e-3 * largest)) for n, g in expected.items()
    )
