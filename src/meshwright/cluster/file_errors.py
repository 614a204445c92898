"""Suggestions for errors in a cluster file: keys of other tools, and a complete minimal file."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from meshwright.errors import Problem

MINIMAL_FILE = (
    "pools: [{device: h100-sxm-80gb, count: 64, node: {like: dgx-h100, nic_gbit_per_s_per_node: 3200}}]"
)
"""A complete cluster file on one line; the node may be left out."""
HABITS = {
    ("nodes", "num_nodes", "node_count"): "count: the number of devices, which is nodes × devices of a node",
    ("devices_per_node", "gpus_per_node", "num_gpus_per_node"): "node: {like: dgx-h100, devices: 8}",
    ("gpus", "num_gpus", "devices", "num_devices"): "count: 64",
    ("gpu", "gpu_type", "accelerator"): "device: h100-sxm-80gb",
    (
        *("nic_gbit_per_s", "nic_gbps", "network_gbps", "bandwidth", "nic_bandwidth", "inter_node_bandwidth"),
        *("nic_gbit_per_s_per_node", "nic_count"),
    ): "node: {like: dgx-h100, nic_gbit_per_s_per_node: 3200}, all cards of a node together",
    ("memory", "memory_gb", "memory_gib", "gpu_memory"): "device: {like: h100-sxm-80gb, memory_gib: 79.1}",
    ("tflops", "peak_tflops", "flops"): "device: {like: h100-sxm-80gb, peak_tflops: {bf16: 989.4}}",
    ("price", "usd_per_hour", "cost", "price_per_hour"): "usd_per_device_hour: 2.5",
}
"""Keys of other tools, and keys of the wrong place, with what says the same here."""
HABITUAL_KEYS = frozenset(key for keys in HABITS for key in keys)
IN_A_POOL = ("device", "count", "node", "usd_per_device_hour")
"""Keys of a pool that are often written at the top of the file."""


def with_examples(problems: Iterable[Problem]) -> Iterator[Problem]:
    """Yield the problems of a cluster file: habitual keys with what to write, the last one with a complete file."""
    found = [_in_our_words(problem) for problem in problems]
    for problem in found[:-1]:
        yield problem
    for problem in found[-1:]:
        lead = f"{problem.suggestion}; " if problem.suggestion else ""
        yield replace(problem, suggestion=f"{lead}a complete file: {MINIMAL_FILE}")


def _in_our_words(problem: Problem) -> Problem:
    *place, key = problem.field.split(".")
    if "unknown key" not in problem.rule:
        return problem
    if not place and key in IN_A_POOL:
        return replace(problem, suggestion=f"pools: [{{{key}: …}}]: it belongs to a pool")
    hint = next((words for keys, words in HABITS.items() if key in keys), None)
    if hint is None:
        return problem
    return replace(problem, suggestion=hint if place else f"in a pool, {hint}")
