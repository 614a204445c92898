"""Faults of context parallelism: a block that is not the one meant, a wrong order, a part that is lost."""

from dataclasses import replace

import torch
from covering_plans import Proven
from injected_fault import Fault

from meshwright.plans.context_parallel import Context
from meshwright.runtime.comm.ring_exchange import RingExchange
from meshwright.runtime.kernels.context_parallel import ring_attention, ulysses
from meshwright.runtime.kernels.context_parallel.all_gather import AllGatherAttention
from meshwright.runtime.kernels.context_parallel.interface import RingMember
from meshwright.runtime.kernels.context_parallel.tiled_attention import Partial
from meshwright.runtime.kernels.kernel import Setting

RING = Proven("llama", cp=4, micro_batches=1, layers=2)
ULYSSES = replace(RING, cp=2, context="ulysses")
BOTH = replace(RING, context=Context(form="ring", ulysses=2))


def off_by_one_block():
    original = RingMember.of

    def of(self, place):
        mine = place % self.ranks == self.setting.ring_place
        return original(self, place if mine else place + 1)

    RingMember.of = of


def other_way_round():
    original = RingExchange.pass_on
    RingExchange.pass_on = lambda self, tensor, *args, distance=1: original(
        self, tensor, *args, distance=-distance
    )


def own_part_lost():
    original = ring_attention.ring_gather_and_sum

    def ring_gather_and_sum(around, held, contribute):
        def others(place, tensor):
            part = contribute(place, tensor)
            return torch.zeros_like(part) if place == around.place else part

        return original(around, held, others)

    ring_attention.ring_gather_and_sum = ring_gather_and_sum


def statistics_not_used():
    original = Partial.add

    def add(self, place, q, out, statistic):
        original(self, place, q, out, torch.zeros_like(statistic))

    Partial.add = add


def positions_begin_again_on_every_rank():
    original = Setting.positions.func
    Setting.positions = property(lambda self: torch.arange(len(original(self))))


def heads_of_another_rank():
    original = ulysses._heads_together
    ulysses._heads_together = lambda x: original(x.flip(0))


def gathered_in_the_order_of_ranks():
    AllGatherAttention._sorted = lambda self, whole: whole


def results_return_to_a_neighbour():
    original = RingExchange.pass_on

    def pass_on(self, tensor, *args, distance=1):
        return original(self, tensor, *args, distance=distance if distance == 1 else -1)

    RingExchange.pass_on = pass_on


CONTEXT_FAULTS = (
    Fault("a ring is off by one block", RING, off_by_one_block),
    Fault("keys go round the other way", RING, other_way_round),
    Fault("gradients of a rank's own keys are lost", RING, own_part_lost),
    Fault("parts of a softmax are added without their statistics", RING, statistics_not_used),
    Fault("positions begin again on every rank of cp", RING, positions_begin_again_on_every_rank),
    Fault("heads come back in another order", ULYSSES, heads_of_another_rank),
    Fault("heads come back in another order inside of a ring", BOTH, heads_of_another_rank),
    Fault(
        "gathered keys stay in the order of ranks",
        replace(RING, context="all-gather"),
        gathered_in_the_order_of_ranks,
    ),
    Fault(
        "results go back to the wrong rank",
        replace(RING, context="token-ring"),
        results_return_to_a_neighbour,
    ),
    Fault("scores are written down off by one block", replace(RING, context="rsa"), off_by_one_block),
)
