"""Faults of distributed training, each put into the ranks of a small plan in one place: a proof must see all of them.

``FAULTS`` is the list: what is broken, the plan that has what it breaks, the change, and a check that must see it. A
change is made in a forked rank, so nothing is ever put back. A named error counts where it is the one that is meant.
"""

from dataclasses import replace

import torch
import torch.distributed as dist
from bucket_plans import BUCKET_FAULTS
from context_parallel_faults import CONTEXT_FAULTS
from covering_plans import Proven
from dispatch_plans import TRAVEL_FAULTS
from encoder_faults import ENCODER_FAULTS
from expert_faults import EXPERT_FAULTS
from injected_fault import Fault
from linear_attention_faults import LINEAR_FAULTS
from next_token_faults import NEXT_TOKEN_FAULTS
from offload_faults import OFFLOAD_FAULTS
from packing_faults import PACKING_FAULTS
from pipeline_vocabulary_faults import SPREAD_FAULTS
from post_validation_faults import LATE_FAULTS
from state_space_faults import STATE_SPACE_FAULTS

from meshwright.model.named_tensors import TOKEN_TABLE
from meshwright.runtime.comm.pipeline_messages import PipelineMessages
from meshwright.runtime.executor.interpreter import Interpreter
from meshwright.runtime.executor.stage_passes import StageRun
from meshwright.runtime.kernels.attention import rotated_heads
from meshwright.runtime.kernels.attention.softmax_attention import AttentionKernel
from meshwright.runtime.kernels.kernel import Setting
from meshwright.runtime.kernels.linear import LinearKernel
from meshwright.runtime.kernels.vocabulary.sharded_logits import ShardedLogits
from meshwright.runtime.kernels.vocabulary.sharded_softmax import IGNORED, Softmax
from meshwright.runtime.kernels.vocabulary.token_embedding import EmbeddingKernel
from meshwright.runtime.state import optimizer, optimizer_parts
from meshwright.runtime.state.gradient_buffers import GradientBuffer
from meshwright.runtime.state.gradient_reduction import GradientReductions
from meshwright.runtime.state.optimizer import Optimizer
from meshwright.runtime.state.parameter_lifecycle import StepStates
from meshwright.runtime.state.sharded_unit import TP, Unit

# -- reductions ---------------------------------------------------------------------------------------------------


def dropped_reduce():
    original = Unit.reduce
    Unit.reduce = lambda self, items: original(self, items[:-1])


def averaged_replicas():
    original = Unit.reduce

    def reduce(self, items):
        yield from original(self, items)
        self.reduced /= 2

    Unit.reduce = reduce


def no_norm_reduce():
    original = Unit.reduce
    Unit.reduce = lambda self, items: original(self, [item for item in items if item.axes != TP])


def tied_not_summed():
    original = Unit.tied
    Unit.tied = lambda self: original(self).clone()
    Unit.set_tied = lambda self, summed: None


def copies_not_summed():
    GradientReductions.mirrored = lambda self, action: self.end()


def reduced_before_the_last_weight_gradient():
    original = Interpreter.__post_init__

    def init(self):
        lists = list(map(list, self.program.lists))
        mine = lists[self.plan.pipeline_rank]
        at = next(i for i, action in enumerate(mine) if action.kind == "REDUCE")
        mine.insert(max(i for i in range(at) if mine[i].kind in ("B", "W")), mine.pop(at))
        object.__setattr__(self.program, "lists", tuple(map(tuple, lists)))
        original(self)

    Interpreter.__post_init__ = init


# -- the count of labels ------------------------------------------------------------------------------------------


def _with_divisor(divisor):
    original = Softmax.__init__

    def init(self, batch, numbers):
        original(self, replace(batch, divisor=divisor(batch)), numbers)

    Softmax.__init__ = init


def local_divisor():
    """The mean over replicas and micro-batches of means: 2 replicas, 2 micro-batches."""
    _with_divisor(lambda batch: 4 * int((batch.labels != IGNORED).sum()))


def one_label_more():
    _with_divisor(lambda batch: batch.divisor + 1)


# -- micro-batches and passes -------------------------------------------------------------------------------------


def swapped_micro_batches():
    original = Interpreter.step

    def step(self, batches, *others, **named):
        return original(self, batches[::-1] if self.plan.pipeline_rank else batches, *others, **named)

    Interpreter.step = step


def stale_weight_gradient():
    original, before = LinearKernel.weight_gradient, {}

    def weight_gradient(self, visit):
        key = "gathered" if "gathered" in visit.kept else "input"
        own = visit.kept[key]
        visit.kept[key] = before.get(self.matrices, own)
        before[self.matrices] = own
        original(self, visit)

    LinearKernel.weight_gradient = weight_gradient


def last_micro_batch_only():
    original = GradientBuffer.add_product

    def add_product(self, names, g, x):
        self.of(names[0])
        self._unwritten |= set(names)
        original(self, names, g, x)

    GradientBuffer.add_product = add_product


def reused_receive_buffer():
    original = StageRun.input_gradient

    def input_gradient(self, g):
        result = original(self, g)
        if g is not None:
            g.fill_(float("nan"))
        return result

    StageRun.input_gradient = input_gradient


def messages_change_places():
    original = PipelineMessages.begin_step

    def begin_step(self):
        original(self)
        for row in self.expected.values():
            row[0], row[1] = row[1], row[0]

    PipelineMessages.begin_step = begin_step


class _Skipped:
    visits: dict = {}  # noqa: RUF012

    def __init__(self, plan):
        self.plan = plan

    def forward(self, x):
        return x

    def input_gradient(self, g):
        return g

    def weight_gradient(self):
        pass


def skipped_layer():
    original = StageRun.__post_init__

    def init(self):
        original(self)
        layers = [at for at, place in enumerate(self.plan.places[self.stage]) if place.layer is not None]
        if len(layers) > 1:
            self.runs[layers[-1]] = _Skipped(self.runs[layers[-1]].plan)

    StageRun.__post_init__ = init


def turned_twice_when_recomputed():
    original = AttentionKernel.again

    def again(self, visit):
        self._rotate([visit.kept["queries"], visit.kept["keys"]], visit.batch)
        return original(self, visit)

    AttentionKernel.again = again


def last_weight_gradient_forgotten():
    original = Interpreter.__post_init__

    def init(self):
        lists = list(map(list, self.program.lists))
        mine = lists[self.plan.pipeline_rank]
        del mine[max(i for i, action in enumerate(mine) if action.kind == "W")]
        object.__setattr__(self.program, "lists", tuple(map(tuple, lists)))
        original(self)

    Interpreter.__post_init__ = init


# -- parameters ---------------------------------------------------------------------------------------------------


def gathered_too_late():
    original = Unit.gather

    def gather(self, items):
        now = self.owned
        self.owned = self.__dict__.get("before", now)
        self.before = now.clone()
        yield from original(self, items)
        self.owned = now

    Unit.gather = gather


def gather_left_out():
    original = Unit.gather

    def gather(self, items):
        if self.name != "layers.1":
            yield from original(self, items)

    Unit.gather = gather


def wrong_group_order():
    original = Unit.__post_init__

    def init(self):
        original(self)
        self.part = self.layout.parts - 1 - self.part

    Unit.__post_init__ = init


def head_rows_of_another_rank():
    original = ShardedLogits._targets

    def targets(self, labels, width):
        swapped = torch.where(labels < width, labels + width, labels - width)
        return original(self, swapped.clamp(max=self.op.vocab - 1), width)

    ShardedLogits._targets = targets


def rows_of_other_ranks_looked_up():
    original = EmbeddingKernel._rows
    EmbeddingKernel._rows = lambda self, tokens, rows: (original(self, tokens, rows)[0], None)


# -- tensor parallelism -------------------------------------------------------------------------------------------


def positions_begin_again():
    """On the second rank, in the middle of the sequence."""
    original = rotated_heads.rotation

    def rotation(rotary, length, positions, like):
        turn = original(rotary, length, positions, like)
        if dist.get_rank() == 0:
            return turn
        half = torch.arange(length) % (length // 2)
        return replace(turn, cos=turn.cos[half], sin=turn.sin[half])

    rotated_heads.rotation = rotation


def bias_counted_by_every_rank():
    Setting.counts_whole = True


def slopes_of_the_first_rank():
    Setting.first_head = 0


# -- norm and optimizer -------------------------------------------------------------------------------------------


def _counted_by_every_rank(which):
    original = optimizer.first_owner

    def first_owner(program, rank, layout, tensor, part):
        return rank if which(tensor) else original(program, rank, layout, tensor, part)

    optimizer.first_owner = first_owner


def copies_counted_twice():
    _counted_by_every_rank(lambda tensor: True)


def table_counted_twice():
    _counted_by_every_rank(lambda tensor: tensor.name == TOKEN_TABLE)


def norms_counted_by_every_rank():
    _counted_by_every_rank(lambda tensor: not tensor.widths_cut)


def clipped_by_the_local_norm():
    original = Optimizer.update

    def update(self, norm, factor=1.0):
        original(self, self.squares().sqrt().item(), factor)

    Optimizer.update = update


def norms_decayed():
    original = optimizer_parts.ElementPart.update

    def update(self, *arguments):
        original(replace(self, decayed=(*self.decayed, *self.plain), plain=()), *arguments)

    optimizer_parts.ElementPart.update = update


def two_steps_in_one():
    original = optimizer_parts.ElementPart.update

    def update(self, *arguments):
        original(self, *arguments)
        original(self, *arguments)

    optimizer_parts.ElementPart.update = update


def unclipped():
    original = Optimizer.update
    Optimizer.update = lambda self, norm, factor=1.0: original(self, 0.0, factor)


def forgotten_moments():
    original = StepStates.begin_step

    def begin_step(self, lr_factor):
        for parts in self.optimizer.parts.values():
            for part in parts:
                part.states["first_moment"].values.zero_()
        original(self, lr_factor)

    StepStates.begin_step = begin_step


REPLICAS = Proven("llama", dp_replicate=2)
SHARDS = Proven("llama", dp_shard=2, sharding="zero3")
TENSOR = Proven("llama", tp=2, sequence_parallel=True)
PIPELINE = Proven("llama", pp=2)
TIED = Proven("qwen3", pp=2)
SPLIT = Proven("llama", pp=2, schedule="zb-h1")

TWO_WAYS = Proven("qwen3", pp=2, schedule="dualpipe", layers=4)
SPLIT_EVERYWHERE = replace(SPLIT, schedule="v-min", micro_batches=4, layers=4)

FAULTS = (
    Fault("a reduction over replicas is dropped", REPLICAS, dropped_reduce),
    Fault("gradients are averaged over replicas, not summed", REPLICAS, averaged_replicas),
    Fault("gradients of norms are not summed under sequence parallelism", TENSOR, no_norm_reduce),
    Fault("the two ends' gradients of a tied table are not summed", TIED, tied_not_summed),
    Fault(
        "gradients are reduced before the last weight gradient",
        Proven("llama", pp=2, dp_shard=2, sharding="zero2", schedule="zb-h1"),
        reduced_before_the_last_weight_gradient,
    ),
    Fault("the loss is divided by each rank's own count of labels", REPLICAS, local_divisor),
    Fault("one label too many is counted", TENSOR, one_label_more, "loss"),
    Fault("a stage takes another micro-batch's labels", PIPELINE, swapped_micro_batches),
    Fault("W takes the input of another micro-batch", SPLIT, stale_weight_gradient),
    Fault("weight gradients are not summed over micro-batches", REPLICAS, last_micro_batch_only),
    Fault("a receive buffer is used again before W", SPLIT, reused_receive_buffer),
    Fault("two messages of a channel change places", PIPELINE, messages_change_places),
    Fault("a layer of an uneven stage is skipped", PIPELINE, skipped_layer),
    Fault(
        "recomputed attention rotates what is rotated already",
        replace(TENSOR, recompute="selective"),
        turned_twice_when_recomputed,
    ),
    Fault(
        "parameters are gathered before the optimizer's step",
        replace(SHARDS, sharding="zero1"),
        gathered_too_late,
    ),
    Fault(
        "a layer is not gathered",
        replace(SHARDS, gather="per-layer"),
        gather_left_out,
        "named error",
        "is used while layers.1 is not gathered",
    ),
    Fault(
        "the last weight gradient is forgotten",
        SPLIT_EVERYWHERE,
        last_weight_gradient_forgotten,
        "named error",
        "passes were left over",
    ),
    Fault("shards are put together in another order", SHARDS, wrong_group_order),
    Fault("a tp rank's labels are counted from another's rows", TENSOR, head_rows_of_another_rank),
    Fault("tokens of other tp ranks are looked up too", TENSOR, rows_of_other_ranks_looked_up),
    Fault("positions begin again on the second tp rank", TENSOR, positions_begin_again),
    Fault("positions begin again on the second stage", PIPELINE, positions_begin_again),
    Fault(
        "every tp rank counts the bias of a row-parallel matrix",
        replace(TENSOR, model="gpt2"),
        bias_counted_by_every_rank,
    ),
    Fault("ALiBi takes the first tp rank's slopes", replace(TENSOR, model="bloom"), slopes_of_the_first_rank),
    Fault("the norm counts a tied table twice", TIED, table_counted_twice, "gradient norm"),
    Fault("the norm counts norms on every tp rank", TENSOR, norms_counted_by_every_rank, "gradient norm"),
    Fault(
        "gradients are clipped by the norm of a rank's own", SHARDS, clipped_by_the_local_norm, "parameters"
    ),
    Fault("gradients are not clipped", REPLICAS, unclipped, "parameters"),
    Fault("norms decay", SHARDS, norms_decayed, "parameters"),
    Fault("the optimizer steps twice", REPLICAS, two_steps_in_one, "parameters"),
    Fault("the first moment is lost between steps", SHARDS, forgotten_moments, "parameters"),
    Fault("gradients of two copies of a layer are not summed", TWO_WAYS, copies_not_summed),
    Fault("the norm counts two copies of a layer", TWO_WAYS, copies_counted_twice, "gradient norm"),
    *CONTEXT_FAULTS,
    *SPREAD_FAULTS,
    *OFFLOAD_FAULTS,
    *LATE_FAULTS,
    *EXPERT_FAULTS,
    *PACKING_FAULTS,
    *LINEAR_FAULTS,
    *STATE_SPACE_FAULTS,
    *ENCODER_FAULTS,
    *NEXT_TOKEN_FAULTS,
    *TRAVEL_FAULTS,
    *BUCKET_FAULTS,
)
