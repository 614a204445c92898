"""Facts about a stack's recipes that hold on one family of devices."""

from typing import Literal

from meshwright.stack.file_row import FileRow

Captured = Literal["nothing", "attention", "step"]


class DeviceRecipe(FileRow):
    """A row of a stack's ``device_recipes``.

    ``device``: a family of devices, as ``cost/data/kernels.csv`` names it. ``captures``: what runs as a captured graph,
    which the host launches as one: attention and router of every layer, or the whole step. ``fuses_experts``: products
    of experts in mxfp8 permute, activate and quantise in the same kernel. ``overlaps_exchange``: the exchange of a
    pass runs beside compute of another micro-batch, in mxfp8. ``source``: where that was read.
    """

    device: str
    captures: Captured = "nothing"
    fuses_experts: bool = False
    overlaps_exchange: bool = False
    source: str
