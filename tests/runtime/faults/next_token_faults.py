"""Faults of layers that predict further tokens."""

from dataclasses import replace

from injected_fault import Fault
from next_token_plans import PIPE, SHARDS, further

from meshwright.runtime.batch import rank_micro_batches
from meshwright.runtime.batch.rank_micro_batches import StepBatch
from meshwright.runtime.kernels.linear import LinearKernel
from meshwright.runtime.kernels.vocabulary.cross_entropy import LossKernel
from meshwright.runtime.state.gradient_reduction import GradientReductions


def labels_one_place_too_few():
    original = StepBatch.ahead

    def ahead(self, places):
        return original(self, places)._replace(labels=original(self, places - 1).labels)

    StepBatch.ahead = ahead


def tokens_one_place_too_few():
    original = StepBatch.ahead

    def ahead(self, places):
        return original(self, places)._replace(tokens=original(self, places - 1).tokens)

    StepBatch.ahead = ahead


def labels_behind_the_documents_end():
    original = StepBatch.ahead

    def ahead(self, places):
        return original(self._replace(begins=None), places)._replace(begins=self.begins)

    StepBatch.ahead = ahead


def moved_inside_of_each_part():
    original = rank_micro_batches.micro_batches

    def micro_batches(*arguments):
        made = original(*arguments)
        for at, batch in enumerate(made):
            ahead = StepBatch(batch.tokens.t(), batch.labels.t()).ahead(1)
            one = replace(batch.further[0], tokens=ahead.tokens.t(), labels=ahead.labels.t())
            made[at] = replace(batch, further=(one,))
        return made

    rank_micro_batches.micro_batches = micro_batches


def counted_as_much_as_the_next_token():
    LossKernel._batch = lambda self, visit: visit.batch


def copy_of_the_table_by_itself():
    GradientReductions.tied = lambda self, action: self.end()


def head_without_their_gradient():
    original = LinearKernel.weight_gradient

    def weight_gradient(self, visit):
        if self.op.name == "next_head":
            visit.kept.clear()
        else:
            original(self, visit)

    LinearKernel.weight_gradient = weight_gradient


ALONE = further("glm4_moe", 1)
PACKED = further("glm4_moe", 1, documents=8)
CUT = further("glm4_moe", 1, cp=2)
PIPED = further("deepseek_v3", 2, **PIPE, **SHARDS)

NEXT_TOKEN_FAULTS = (
    Fault("labels of further tokens stand one place too few ahead", ALONE, labels_one_place_too_few),
    Fault("further tokens stand one place too few ahead", PIPED, tokens_one_place_too_few),
    Fault("labels of further tokens go over documents' ends", PACKED, labels_behind_the_documents_end),
    Fault("further tokens stop at the border of a rank's part", CUT, moved_inside_of_each_part),
    Fault("further tokens count as much as the next", ALONE, counted_as_much_as_the_next_token),
    Fault("the copy of the table is not summed with it", PIPED, copy_of_the_table_by_itself),
    Fault("the head does not learn from further tokens", PIPED, head_without_their_gradient),
)
