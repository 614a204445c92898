"""Describe a model as JSON-ready data: sizes, FLOPs, cache, blocks, and every default taken."""

from collections import Counter
from dataclasses import asdict, fields, replace

from meshwright.errors import InputError, Problem
from meshwright.model.architecture import Architecture
from meshwright.model.encoder import VisionEncoder
from meshwright.model.graph import Block, ModelGraph
from meshwright.model.numerics import UNKNOWN
from meshwright.model.operators.operator_types import Operator

CACHE_BYTES_PER_ELEMENT = 2  # bf16

NOT_COUNTED = "FLOPs of the encoder: they depend on what a workload has it read"
OF_ENCODERS = (
    "tokens",
    "merged",
    "publishes",
    "shared_input",
    "causal",
    "keys",
    "biased",
    "merge",
    "side",
    "function",
)
"""Fields of operators shown only where an encoder makes them differ from those of other models."""


def describe_model(graph: ModelGraph, seq_len: int = 4096) -> dict[str, object]:
    """Return the sizes of a model; FLOPs per token are those of a sequence of ``seq_len`` tokens.

    ``kv_bytes_per_token`` is in bf16, before windows cap it. Raises InputError if seq_len < 1.
    """
    if seq_len < 1:
        raise InputError(Problem("seq_len", seq_len, "seq_len >= 1", "e.g. 4096"))
    names = [block.name for block in graph.blocks]
    repeats = Counter[int]()
    for index, repeat in graph.chain:
        repeats[index] += repeat
    return {
        "name": graph.name,
        "family": graph.architecture.family,
        "parameters": graph.parameters,
        "parameters_active": graph.parameters_active,
        "parameters_embedding": graph.parameters_embedding,
        "seq_len": seq_len,
        "flops_per_token_forward": graph.flops_per_token_forward(seq_len),
        "flops_per_token_forward_causal": graph.flops_per_token_forward(seq_len, causal=True),
        "kv_bytes_per_token": graph.kv_bytes_per_token(CACHE_BYTES_PER_ELEMENT),
        "kv_bytes_per_element": CACHE_BYTES_PER_ELEMENT,
        "chain": [[names[index], repeat] for index, repeat in graph.chain],
        "blocks": [_block(block, repeats[index], seq_len) for index, block in enumerate(graph.blocks)],
        "architecture": _architecture(graph.architecture),
        "assumed": dict(graph.architecture.assumed),
        "left_out": [*graph.architecture.left_out, *([NOT_COUNTED] if graph.encoder_blocks else [])],
        "source": graph.source,
    }


def _block(block: Block, repeat: int, seq_len: int) -> dict[str, object]:
    """Return the sizes of one distinct block, for a single repeat."""
    return {
        "name": block.name,
        "kind": block.kind,
        "repeat": repeat,
        "parameters": block.parameters,
        "parameters_active": block.parameters_active,
        "flops_per_token_forward": block.flops_per_token_forward(seq_len, causal=False),
        "flops_per_token_forward_causal": block.flops_per_token_forward(seq_len, causal=True),
        "operators": [_operator(operator) for operator in block.operators],
    }


def _operator(operator: Operator) -> dict[str, object]:
    sizes = {
        field.name: getattr(operator, field.name)
        for field in fields(operator)
        if field.name not in ("name", "place", "parameters")
    }
    for field in fields(operator):
        if field.name in OF_ENCODERS and sizes[field.name] == field.default:
            del sizes[field.name]
    if "reads" in sizes:
        sizes["reads"] = [name or "block input" for name in sizes["reads"]]
    if "borrows" in sizes:
        sizes["borrows"] = [parameter.name for parameter in sizes["borrows"]]
    shapes = {parameter.name: list(parameter.shape) for parameter in operator.parameters}
    head = {"name": operator.name, "type": type(operator).__name__, "place": operator.place}
    return {**head, **sizes, "parameters": shapes}


def _architecture(arch: Architecture) -> dict[str, object]:
    """Return all fields that planning reads; per-layer fields are counted instead of listed."""
    data = asdict(replace(arch, numerics=UNKNOWN))
    for key in ("name", "family", "source", "assumed", "left_out", "numerics"):
        del data[key]
    windows = Counter("all positions" if window is None else f"{window} positions" for window in arch.windows)
    data["windows"] = dict(windows)
    data["layer_parts"] = dict(Counter(arch.parts))
    if arch.moe is not None:
        data["moe"]["layers"] = sum(arch.moe.layers)
    if arch.linear is not None:
        data["linear"]["layers"] = sum(arch.linear.layers)
    if arch.state_space is not None:
        data["state_space"]["layers"] = sum(arch.state_space.layers)
    if isinstance(arch.encoder, VisionEncoder):
        data["encoder"]["whole_image"] = sum(arch.encoder.whole_image)
    return data
