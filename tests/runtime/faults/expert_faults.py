"""Faults of experts on a mesh of their own, of routers, and of the other attention that models with experts have."""

from dataclasses import replace

import torch
from capacity_plans import BOUNDED, CUT, FEW
from covering_plans import Proven
from injected_fault import Fault

from meshwright.program.model_states.state_elements import DENSE_MESH
from meshwright.runtime.kernels.attention import softmax_attention
from meshwright.runtime.kernels.attention.latent_attention import LatentAttentionKernel
from meshwright.runtime.kernels.moe import expert_capacity, expert_linear
from meshwright.runtime.kernels.moe.expert_capacity import Admission
from meshwright.runtime.kernels.moe.token_permutation import TokenPermutation
from meshwright.runtime.kernels.moe.top_k_routing import TopKRouting
from meshwright.runtime.state import optimizer
from meshwright.runtime.state.sharded_unit import Unit
from meshwright.workload.expert_capacity import Capacity


def routed_twice():
    original = TopKRouting.experts

    def experts(self, logits, correction):
        found = original(self, logits, correction).clone()
        found[0, 1] = found[0, 0]
        return found

    TopKRouting.experts = experts


def not_sorted_by_expert():
    TokenPermutation.sorting = property(lambda self: torch.arange(int(self.arriving.sum())))


def router_without_gradient():
    original = TopKRouting.gradient
    TopKRouting.gradient = lambda self, *arguments: original(self, *arguments) * 0


def weights_without_scaling():
    original = TopKRouting.weights
    TopKRouting.weights = lambda self, logits, experts: original(self, logits, experts) / 1.5


def results_in_the_order_of_experts():
    TokenPermutation.by_token = lambda self, rows: rows.unflatten(0, (-1, self.chosen))


def experts_not_reduced():
    original = Unit.reduce

    def reduce(self, items):
        return original(self, items if self.layout.mesh is DENSE_MESH else ())

    Unit.reduce = reduce


def experts_counted_as_if_dense():
    original = optimizer.first_owner

    def first_owner(program, rank, layout, tensor, part):
        return original(program, rank, replace(layout, mesh=DENSE_MESH), tensor, part)

    optimizer.first_owner = first_owner


def bias_added_by_every_etp_rank():
    expert_linear.ETP = ("nothing",)


def sinks_without_gradient():
    original = softmax_attention.sink_gradients
    softmax_attention.sink_gradients = lambda *arguments: original(*arguments) * 0


def rotary_key_of_one_head():
    original = LatentAttentionKernel._fused

    def fused(self, gradients, batch):
        of_queries, of_keys, of_values = gradients
        of_keys = of_keys.clone()
        of_keys[:, 1:, :, self._plain :] = 0
        return original(self, (of_queries, of_keys, of_values), batch)

    LatentAttentionKernel._fused = fused


def the_heaviest_are_dropped():
    original = expert_capacity.admitted_choices
    expert_capacity.admitted_choices = lambda queues, worth, places: original(queues, -worth, places)


def one_place_too_few():
    original = Admission._places
    Admission._places = lambda self, tokens: original(self, tokens) - 1


def places_of_a_part_alone():
    original = expert_capacity.sum_router_counts
    expert_capacity.sum_router_counts = lambda communicator, table, axes: (
        original(communicator, table.clone(), axes) * 0 + table
    )


def weights_of_those_left_made_whole():
    original = Admission.sent

    def sent(self, experts, weights, batch):
        kept = self.admitted(experts, weights, batch)
        share = (weights * kept).sum(-1, keepdim=True) / weights.sum(-1, keepdim=True)
        found = original(self, experts, weights, batch)
        weights /= share.clamp(min=1e-9)
        return found

    Admission.sent = sent


EP = Proven("mixtral", dp_replicate=2, ep=2)
ETP = Proven("gpt_oss", dp_replicate=2, etp=2)
REPLICATED = Proven("mixtral", dp_replicate=2)
LATENT = Proven("deepseek_v3", tp=2, sequence_parallel=True)
PADDED = Capacity(factor=1.0, pad=True)
WIDE = replace(CUT, capacity=replace(FEW, scope="sequence"))

EXPERT_FAULTS = (
    Fault("a token is routed twice to one expert", EP, routed_twice),
    Fault("rows are not sorted by expert", EP, not_sorted_by_expert),
    Fault("the router has no gradient", EP, router_without_gradient),
    Fault("weights of experts are scaled otherwise", REPLICATED, weights_without_scaling),
    Fault("results come back in the order of experts", REPLICATED, results_in_the_order_of_experts),
    Fault("gradients of experts are not reduced over their replicas", REPLICATED, experts_not_reduced),
    Fault("the norm counts experts as if they were dense", EP, experts_counted_as_if_dense, "gradient norm"),
    Fault("every etp rank adds the bias of a row-parallel expert", ETP, bias_added_by_every_etp_rank),
    Fault("sinks have no gradient", Proven("gpt_oss"), sinks_without_gradient),
    Fault("the heaviest tokens are dropped", BOUNDED, the_heaviest_are_dropped),
    Fault(
        "an expert has a place too few", replace(BOUNDED, capacity=PADDED), one_place_too_few, "named error"
    ),
    Fault("ranks see their own tokens alone", WIDE, places_of_a_part_alone),
    Fault(
        "weights of a token with a dropped expert are made whole", BOUNDED, weights_of_those_left_made_whole
    ),
    Fault("the rotary key learns from one head alone", LATENT, rotary_key_of_one_head),
)
