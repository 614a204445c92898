"""Facts about a stack's recipes for models with experts that hold on one family of devices."""

from typing import Literal

from meshwright.stack.file_row import FileRow

Captured = Literal["nothing", "attention", "step"]


class DeviceRecipe(FileRow):
    """A row of a stack's ``device_recipes``.

    ``device``: a family of devices, as ``cost/data/kernels.csv`` names it. ``precisions``: those that the row is of,
    any if there are none. ``captures``: what runs as a captured graph, which the host launches as one: attention and
    router of every layer, or the whole step. ``fuses_experts``: products of experts permute, activate and quantise in
    the same kernel. ``overlaps_exchange``: the exchange of a pass runs beside compute of another micro-batch.
    ``source``: where that was read.
    """

    device: str
    precisions: tuple[str, ...] = ()
    captures: Captured = "nothing"
    fuses_experts: bool = False
    overlaps_exchange: bool = False
    source: str

    def is_for(self, device: str, precision: str) -> bool:
        """Return whether the row is of a family of devices at a precision."""
        return self.device == device and (not self.precisions or precision in self.precisions)


NO_RECIPE = DeviceRecipe(device="any", source="no row")
"""What holds where a stack has no row."""
