"""Faults of encoders: gradients of one reader, wrong positions, wrong windows, image rows out of place."""

from dataclasses import replace

import torch
from encoder_plans import TWO_TEXTS, WITH_IMAGES
from injected_fault import Fault

from meshwright.runtime.executor.intermediate_values import StageValues
from meshwright.runtime.kernels.attention.rotated_heads import RotatedHeads
from meshwright.runtime.kernels.boundary_and_residual import BoundaryKernel
from meshwright.runtime.kernels.encoder import position_bias
from meshwright.runtime.kernels.encoder.image_rows import JoinKernel, PlaceKernel
from meshwright.workload.images import Images


def gradients_of_the_last_reader():
    def add_gradient(self, name, gradient):
        self.gradients.setdefault(name, gradient)

    StageValues.add_gradient = add_gradient


def an_encoder_that_looks_back():
    original = position_bias.relative_buckets
    position_bias.relative_buckets = lambda distance, op: original(distance, replace(op, bidirectional=False))


def partial_gradients_of_the_encoder():
    original = BoundaryKernel.exchange

    def exchange(self, item, x, visit):
        found = yield from original(self, item, x, visit)
        if self.op.name == "enter_memory" and item.phase == "I":
            return self.setting.tp * x.chunk(self.setting.tp)[self.setting.tp_rank]
        return found

    BoundaryKernel.exchange = exchange


def windows_as_wide_as_images():
    original = Images.spans
    Images.spans = lambda self, merge, side: original(self, merge, None)


def rows_in_the_towers_order():
    PlaceKernel._positions = lambda self, device: torch.arange(_rows(self), device=device)


def _rows(kernel):
    images = kernel.setting.shape.encoder.images
    return images.rows(kernel.op.merge)


def text_under_images():
    JoinKernel._is_text = lambda self, x: torch.ones_like(x[:, :1, :1])


def patches_without_columns():
    original = Images.patch_places

    def patch_places(self, merge, side):
        places = original(self, merge, side)
        places[1] = 0
        return places

    Images.patch_places = patch_places


def images_turned_as_text():
    RotatedHeads._turning = property(lambda self: self.setting.positions)


ENCODER_FAULTS = (
    Fault(
        "values of a stage have the gradient of their last reader", TWO_TEXTS, gradients_of_the_last_reader
    ),
    Fault("an encoder's positions look back", TWO_TEXTS, an_encoder_that_looks_back),
    Fault("gradients of the encoder's result are a rank's own", TWO_TEXTS, partial_gradients_of_the_encoder),
    Fault("windows are whole images", WITH_IMAGES, windows_as_wide_as_images),
    Fault("rows of images are in the encoder's order", WITH_IMAGES, rows_in_the_towers_order),
    Fault("embeddings are added to rows of images", WITH_IMAGES, text_under_images),
    Fault("patches turn with their row alone", WITH_IMAGES, patches_without_columns),
    Fault("images turn as text does", WITH_IMAGES, images_turned_as_text),
)
