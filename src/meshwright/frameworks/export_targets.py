"""Plans in the words of other people's frameworks.

``TARGETS`` lists what ``export --to`` accepts of plans that train, ``SERVING_TARGETS`` of plans that serve.
"""

from meshwright.frameworks.accelerate.exporting.exporter import TARGET as ACCELERATE
from meshwright.frameworks.accelerate.exporting.exporter import export_accelerate
from meshwright.frameworks.deepspeed.exporting.exporter import TARGET as DEEPSPEED
from meshwright.frameworks.deepspeed.exporting.exporter import export_deepspeed
from meshwright.frameworks.exporting.export_result import Exporter
from meshwright.frameworks.megatron.exporting.exporter import TARGET as MEGATRON
from meshwright.frameworks.megatron.exporting.exporter import export_megatron
from meshwright.frameworks.megatron_bridge.exporting.exporter import TARGET as MEGATRON_BRIDGE
from meshwright.frameworks.megatron_bridge.exporting.exporter import export_bridge
from meshwright.frameworks.serving.serving_targets import SERVING_TARGETS
from meshwright.frameworks.torchtitan.exporting.exporter import TARGET as TORCHTITAN
from meshwright.frameworks.torchtitan.exporting.exporter import export_torchtitan

TARGETS: dict[str, Exporter] = {
    "megatron": export_megatron,
    "bridge": export_bridge,
    "torchtitan": export_torchtitan,
    "deepspeed": export_deepspeed,
    "accelerate": export_accelerate,
}
STACK_OF_TARGET = {
    "megatron": MEGATRON,
    "bridge": MEGATRON_BRIDGE,
    "torchtitan": TORCHTITAN,
    "deepspeed": DEEPSPEED,
    "accelerate": ACCELERATE,
}
"""The stack that runs the files of each target."""
TARGET_NAMES = (*TARGETS, *SERVING_TARGETS)
"""What ``export --to`` may be."""
