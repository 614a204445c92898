"""Plans in the words of other people's frameworks. ``TARGETS`` lists what ``export --to`` accepts."""

from meshwright.export.accelerate import export_accelerate
from meshwright.export.bridge import export_bridge
from meshwright.export.deepspeed import export_deepspeed
from meshwright.export.megatron import export_megatron
from meshwright.export.result import Exporter
from meshwright.export.torchtitan import export_torchtitan

TARGETS: dict[str, Exporter] = {
    "megatron": export_megatron,
    "bridge": export_bridge,
    "torchtitan": export_torchtitan,
    "deepspeed": export_deepspeed,
    "accelerate": export_accelerate,
}
