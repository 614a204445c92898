"""Plans whose data-parallel ranks train pairs of their own and change one base equal a reference in one process."""

from dataclasses import dataclass

import pytest

pytest.importorskip("torch")

import torch
from adapter_plans import ADAPTER, INT8, OWN, adapted
from covering_plans import Proven
from single_device_check import equal_to_one_device

from meshwright.model.transforms.lora_adapters import with_stacked_pairs
from meshwright.program.model_states.base_changes import replicas_of
from meshwright.runtime.state.base_change_update import BaseChanges
from meshwright.runtime.verify.reference_base_changes import own_products
from meshwright.runtime.verify.reference_steps import reference_steps
from meshwright.runtime.verify.run_case import run_case
from meshwright.runtime.verify.run_state_case import run_case_and_states
from meshwright.runtime.verify.verify_case import VerifyCase
from meshwright.runtime.weights.principal_pairs import PrincipalPairs
from meshwright.workload.expert_capacity import Capacity

NARROW = (("gradient", "bf16"), ("reduce", "bf16"), ("second_moment", "fp8"))
IN_ATTENTION = (*OWN, ("targets", ("q", "k", "v", "o")))


def own_pairs(model="llama", adapter=OWN, **choices):
    """A plan that trains pairs of each data-parallel rank."""
    return adapted(model, adapter, **choices)


QUICK = {
    "pp": own_pairs(pp=2, dp_shard=2, sharding="zero3", gather="per-step", schedule="zb-h1", layers=4),
}
PLANS = QUICK | {
    "zero3 and cp": own_pairs(cp=2, dp_shard=2, sharding="zero3"),
    "tp": own_pairs(tp=2, dp_replicate=2, sequence_parallel=True, recompute=("mlp",)),
    "one rank": own_pairs(),
    "one replica": own_pairs(tp=2, pp=2, schedule="zb-h1"),
    "replicas of shards": own_pairs("qwen3", dp_replicate=2, dp_shard=2, sharding="zero3", micro_batches=3),
    "other order": own_pairs(
        dp_replicate=2,
        dp_shard=2,
        sharding="zero3",
        rank_order=("dp_replicate", "dp_shard", "tp", "cp", "pp"),
    ),
    "uneven shards": own_pairs("gpt2", dp_shard=3, sharding="zero3", recompute="selective"),
    "by micro-batch": own_pairs(
        dp_shard=2, sharding="zero3", gather="per-micro-batch", recompute="full", schedule="zb-h1"
    ),
    "units": own_pairs(
        pp=2, dp_shard=2, sharding="zero3", gather="per-unit", schedule="zeropp", micro_batches=6, layers=4
    ),
    "tied tables apart": own_pairs(
        "qwen3", pp=2, dp_replicate=2, schedule="v-half", micro_batches=4, layers=4
    ),
    "some targets": own_pairs(adapter=(*OWN, ("targets", ("q", "down"))), tp=2, dp_shard=2, sharding="zero3"),
    "heads for positions": own_pairs(cp=2, context="ulysses", dp_replicate=2),
    "packed documents": own_pairs("phi3", cp=2, dp_replicate=2, documents=8),
    "experts": own_pairs("mixtral", IN_ATTENTION, dp_shard=2, ep=2, sharding="zero3"),
    "capacity": own_pairs(
        "mixtral",
        IN_ATTENTION,
        dp_replicate=2,
        tp=2,
        sequence_parallel=True,
        ep=2,
        capacity=Capacity(factor=0.7),
    ),
    "balanced by sequence": own_pairs(
        "deepseek_v3",
        IN_ATTENTION,
        tp=2,
        ep=2,
        dp_replicate=2,
        sequence_parallel=True,
        sizes=(("aux_loss_alpha", 0.5), ("bias_update_speed", 0.05)),
    ),
    "balanced by micro-batch": own_pairs(
        "mixtral",
        IN_ATTENTION,
        pp=2,
        dp_replicate=2,
        ep=2,
        schedule="zb-h1",
        micro_batch=2,
        sizes=(("output_router_logits", True), ("router_aux_loss_coef", 0.5)),
    ),
    "latent attention": own_pairs("deepseek_v3", IN_ATTENTION, dp_replicate=2, ep=2),
    "activations on the host": own_pairs(
        pp=2, dp_replicate=2, schedule="v-half", offload="all", micro_batches=4, layers=4
    ),
}


@dataclass(frozen=True, kw_only=True)
class Begun(VerifyCase):
    """A case with initial parameters of its own."""

    begin: dict

    def tensors(self):
        return {name: tensor.clone() for name, tensor in self.begin.items()}


@dataclass(frozen=True)
class Beginning:
    """A plan whose pairs begin as the leading triplets of the base."""

    plan: Proven

    def trial(self):
        trial = self.plan.trial()
        tensors = trial.tensors()
        stacked = with_stacked_pairs(trial.model, replicas_of(trial.program))
        return Begun(
            trial.program, trial.model, trial.options, begin={**tensors, **PrincipalPairs(tensors, stacked)}
        )


def matrix_rank(change):
    """The number of singular values above rounding."""
    values = torch.linalg.svdvals(change)
    return int((values > 1e-11 * values[0]).sum())


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in PLANS]
)
def test_pairs_of_each_replica_equal_one_process(name):
    equal_to_one_device(PLANS[name])


@pytest.mark.parametrize("adapter", [OWN, ADAPTER, INT8], ids=["own pairs", "lora", "lora on int8"])
def test_narrow_states_of_adapters_are_rounded_where_the_plan_says(adapter):
    plan = adapted(adapter=adapter, dp_replicate=2, layers=1, dtypes=NARROW)
    found = run_case_and_states(plan.trial(), lambda what, part: None)
    assert found.states.equal, found


def test_a_base_that_stays_as_it_was_is_found():
    def forget():
        BaseChanges.add = lambda changes, before: None

    outcome = run_case(own_pairs().trial(), lambda what, part: None, forget)
    assert outcome.parameter.value > 1e-6


def test_ranks_begin_with_the_triplets_of_the_base():
    equal_to_one_device(Beginning(PLANS["tp"]))


@pytest.mark.parametrize(("replicas", "rank"), [(2, 2), pytest.param(8, 1, marks=pytest.mark.slow)])
def test_every_replica_adds_twice_its_rank_to_the_change(replicas, rank):
    """So eight of them change a matrix by 16 times the rank of their pairs, LoRA once and PiSSA twice."""
    plan = own_pairs(adapter=(*OWN[:1], ("rank", rank)), dp_replicate=replicas)
    trial = Beginning(plan).trial()
    begins, ends = trial.tensors(), reference_steps(trial).parameters
    for name in own_products(trial.model, begins):
        assert matrix_rank(ends[name] - begins[name]) == min(2 * replicas * rank, *begins[name].shape)


def test_one_rank_computes_what_principal_adapters_do():
    """PiSSA (arXiv 2404.02948): R + B·A with R = W - B·A frozen, trained as LoRA is."""
    trial = Beginning(own_pairs()).trial()
    begins = trial.tensors()
    products = own_products(trial.model, begins)
    residual = {name: begins[name] - product for name, product in products.items()}
    program, model = adapted(adapter=OWN[1:]).lowered()
    principal = Begun(program, model, trial.options, begin={**begins, **residual})
    own, theirs = reference_steps(trial), reference_steps(principal)
    assert own.losses == pytest.approx(theirs.losses, rel=1e-12)
    assert own.norms == pytest.approx(theirs.norms, rel=1e-12)
    for name, left in residual.items():
        unit = name.removesuffix("weight")
        product = theirs.parameters[f"{unit}lora_B.weight"] @ theirs.parameters[f"{unit}lora_A.weight"]
        assert torch.allclose(own.parameters[name], left + product, rtol=0, atol=1e-12)
        assert matrix_rank(own.parameters[name] - begins[name]) == 2 * dict(OWN)["rank"]
