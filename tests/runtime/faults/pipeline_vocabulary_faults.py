"""Faults of a vocabulary that is spread over the pipeline ranks."""

from dataclasses import replace

from covering_plans import SPREAD
from injected_fault import Fault

from meshwright.model.named_tensors import TOKEN_TABLE
from meshwright.runtime.kernels.kernel import Setting
from meshwright.runtime.kernels.vocabulary.sharded_logits import ShardedLogits
from meshwright.runtime.kernels.vocabulary.sharded_softmax import Softmax
from meshwright.runtime.pipeline_vocabulary.share_actions import VocabularyShare
from meshwright.runtime.pipeline_vocabulary.share_exchanges import Exchanges
from meshwright.runtime.state import optimizer


def rows_of_another_share():
    of_own = Setting.vocabulary_part
    Setting.vocabulary_part = property(lambda self: self.vocabulary_parts - 1 - of_own.func(self))


def no_common_maximum():
    original = Softmax.exchange

    def exchange(self, item, communicator):
        if item.what.endswith("maximum"):
            self.take_maximum()
            return
        yield from original(self, item, communicator)

    Softmax.exchange = exchange


def softmax_of_each_share_alone():
    def exchange(self, item, communicator):
        self.take_maximum()
        self.take_sums()
        return
        yield

    Softmax.exchange = exchange


def gradient_of_one_share_alone():
    original = Exchanges._passed

    def passed(self, x, items, communicator, kind):
        return original(self, x, items if kind != "REDUCE_T" else (), communicator, kind)

    Exchanges._passed = passed


def own_part_summed_twice():
    original = Exchanges._passed

    def passed(self, x, items, communicator, kind):
        own = x.clone()
        return original(self, x, items, communicator, kind) + (own if kind == "REDUCE_E" else 0)

    Exchanges._passed = passed


def rows_of_the_micro_batch_before():
    original, before = VocabularyShare.put, []

    def put(self, kind, m, part):
        if kind == "REDUCE_E" and self.plan.pipeline_rank:
            before.append(part.clone())
            part = before.pop(0) if len(before) > 1 else part
        original(self, kind, m, part)

    VocabularyShare.put = put


def padding_counts_as_words():
    ShardedLogits._valid = lambda self, x: x.shape[-1]


def softmax_not_rescaled():
    ShardedLogits.complete = lambda self, x, softmax: None


def table_of_a_share_counted_once():
    """As if the last rank's were a copy of the first one's."""
    first = optimizer.first_owner

    def first_owner(program, rank, layout, tensor, part):
        return 0 if tensor.name == TOKEN_TABLE else first(program, rank, layout, tensor, part)

    optimizer.first_owner = first_owner


ONE_EXCHANGE = replace(SPREAD, vocabulary="vocab-2")
SPREAD_FAULTS = (
    Fault("shares take each other's rows of the tables", SPREAD, rows_of_another_share),
    Fault("shares add up sums relative to maxima of their own", SPREAD, no_common_maximum),
    Fault("each share takes its own softmax for the whole", ONE_EXCHANGE, softmax_of_each_share_alone),
    Fault(
        "the last stage goes back before other shares' gradients are there",
        SPREAD,
        gradient_of_one_share_alone,
    ),
    Fault("the first stage adds its own rows twice", SPREAD, own_part_summed_twice),
    Fault("a rank enters the rows of the micro-batch before", SPREAD, rows_of_the_micro_batch_before),
    Fault("the padding of the last share counts as words", SPREAD, padding_counts_as_words),
    Fault("a share's softmax is not rescaled to the whole's", ONE_EXCHANGE, softmax_not_rescaled),
    Fault(
        "the norm takes shares of a table for copies",
        replace(SPREAD, model="qwen3"),
        table_of_a_share_counted_once,
        "gradient norm",
    ),
)
