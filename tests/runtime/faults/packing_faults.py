"""Faults of packed documents: borders that are forgotten somewhere, positions that go on."""

from dataclasses import replace

import torch
from injected_fault import Fault
from packed_plans import PACKED, RING

from meshwright.program.context_parallel.positions_and_masks import tiles
from meshwright.runtime.batch.document_packing import Packing
from meshwright.runtime.executor.operator_call import MicroBatch


def forgotten_between_ranks():
    original = Packing.between

    def between(self, queries, keys, window):
        if queries == keys:
            return original(self, queries, keys, window)
        return tuple((slice(0, len(self.begins)), tile) for tile in tiles(queries, keys, window))

    Packing.between = between


def forgotten_where_scores_are_written():
    def foreign(self, rows, columns):
        shape = (len(self.begins), len(rows), len(columns))
        near = columns < self.begins[:, rows, None]
        return near if torch.equal(rows, columns) else torch.zeros(shape, dtype=torch.bool)

    Packing.foreign = foreign


def positions_go_on():
    MicroBatch.positions = lambda self, held: held[:, None]


def borders_of_the_first_sequence():
    original = Packing.__init__

    def init(self, begins):
        original(self, begins[:1].expand_as(begins))

    Packing.__init__ = init


def borders_one_position_late():
    original = Packing.documents.func

    def documents(self):
        return tuple(
            tuple((start + (start > 0), stop + (stop < self.begins.shape[1])) for start, stop in of_one)
            for of_one in original(self)
        )

    Packing.documents = property(documents)


PACKING_FAULTS = (
    Fault("documents' borders are forgotten between ranks", RING, forgotten_between_ranks),
    Fault(
        "documents' borders are forgotten between ranks that write scores down",
        replace(RING, context="rsa"),
        forgotten_where_scores_are_written,
    ),
    Fault("positions go on over documents' borders", replace(RING, cp=2, model="gpt2"), positions_go_on),
    Fault(
        "all sequences have the borders of the first",
        replace(PACKED, dp_replicate=2),
        borders_of_the_first_sequence,
    ),
    Fault(
        "documents begin one position late",
        replace(RING, cp=2, context="all-gather"),
        borders_one_position_late,
    ),
)
