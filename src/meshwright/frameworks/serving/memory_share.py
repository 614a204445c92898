"""Explain how a plan's ``kv_fraction`` became an engine's share of the whole device memory."""

from meshwright.frameworks.exporting.export_result import Refusal
from meshwright.frameworks.serving.settings_of_pools import PoolSettings
from meshwright.units import format_bytes


def memory_remark(settings: PoolSettings, option: str, share: float) -> Refusal:
    """Return the remark that says from which bytes the share of the device in ``option`` was computed."""
    memory, fraction = settings.memory, settings.pool.batching.kv_fraction
    why = (
        f"written as {option} {share:g}, a share of the device's {format_bytes(memory.device_bytes)}: the cache has "
        f"{format_bytes(memory.cache_bytes)} beside computed weights of {format_bytes(memory.weights_bytes)}, "
        f"activations of {format_bytes(memory.activation_bytes)} and buffers of {format_bytes(memory.buffer_bytes)}"
    )
    return Refusal(f"pools.{settings.pool.name}.batching.kv_fraction", f"{fraction:g}", why)
