"""A decoder of Llama's shape in plain PyTorch modules: grouped heads, SwiGLU, RMSNorm, rotary positions.

Values are (sequence, batch, hidden), as in Megatron. Projections with one input are one product. ``Products`` says how
the products of a block are spread over ranks; ``ALONE`` is ``nn.Linear``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from meshwright.model.architecture import Architecture

ROTARY_BASE = 10_000.0
IGNORED = -100


def _linear(inputs: int, outputs: int) -> nn.Module:
    return nn.Linear(inputs, outputs, bias=False)


@dataclass(frozen=True)
class Products:
    """``column`` makes a product whose outputs are cut over ``parts`` ranks, ``row`` one whose inputs are.

    Both are called with the sizes of one rank; ``part`` is this rank's.
    """

    column: Callable[[int, int], nn.Module] = _linear
    row: Callable[[int, int], nn.Module] = _linear
    embedding: Callable[[int, int], nn.Module] = nn.Embedding
    parts: int = 1
    part: int = 0

    def mine(self, whole: Tensor, dim: int) -> Tensor:
        """This rank's part of a tensor."""
        return whole.chunk(self.parts, dim)[self.part]


ALONE = Products()


class Block(nn.Module):
    """One layer."""

    def __init__(self, arch: Architecture, products: Products) -> None:
        super().__init__()
        heads, kv_heads, width = arch.heads // products.parts, arch.kv_heads // products.parts, arch.head_dim
        inner = arch.intermediate // products.parts
        self.head_dim, self.widths = width, (heads * width, kv_heads * width, kv_heads * width)
        self.input_norm = nn.RMSNorm(arch.hidden, eps=arch.norm_epsilon)
        self.qkv = products.column(arch.hidden, sum(self.widths))
        self.o = products.row(heads * width, arch.hidden)
        self.post_norm = nn.RMSNorm(arch.hidden, eps=arch.norm_epsilon)
        self.gate_up = products.column(arch.hidden, 2 * inner)
        self.down = products.row(inner, arch.hidden)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """(sequence, batch, hidden) → the same."""
        parts = self.qkv(self.input_norm(x)).split(self.widths, -1)
        q, k, v = (part.unflatten(-1, (-1, self.head_dim)).permute(1, 2, 0, 3) for part in parts)
        q, k = _turned(q, cos, sin), _turned(k, cos, sin)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.o(y.permute(2, 0, 1, 3).flatten(2))
        gate, up = self.gate_up(self.post_norm(x)).chunk(2, -1)
        return x + self.down(functional.silu(gate) * up)

    def weights(self, tensors: Mapping[str, Tensor], of: Products) -> dict[str, Tensor]:
        """This rank's part of a layer's tensors, by the names of this module's parameters."""
        attention, mlp = (
            {name: tensors[f"{part}.{name}_proj.weight"] for name in names}
            for part, names in (("self_attn", "qkvo"), ("mlp", ("gate", "up", "down")))
        )
        return {
            "input_norm.weight": tensors["input_layernorm.weight"],
            "qkv.weight": torch.cat([of.mine(attention[name], 0) for name in "qkv"]),
            "o.weight": of.mine(attention["o"], 1),
            "post_norm.weight": tensors["post_attention_layernorm.weight"],
            "gate_up.weight": torch.cat([of.mine(mlp[name], 0) for name in ("gate", "up")]),
            "down.weight": of.mine(mlp["down"], 1),
        }


class Decoder(nn.Module):
    """Consecutive layers, with the embedding before the first one and norm and head behind the last."""

    def __init__(
        self,
        arch: Architecture,
        seq_len: int,
        tensors: Mapping[str, Tensor],
        layers: Sequence[int] | None = None,
        products: Products = ALONE,
    ) -> None:
        super().__init__()
        layers = range(arch.layers) if layers is None else layers
        self.embed = self.norm = self.head = None
        if 0 in layers:
            self.embed = products.embedding(arch.vocab // products.parts, arch.hidden)
            _load(self.embed, {"weight": products.mine(tensors["embed.embed_tokens.weight"], 0)})
        self.blocks = nn.ModuleList(Block(arch, products) for _ in layers)
        for block, layer in zip(self.blocks, layers, strict=True):
            start = f"layers.{layer}."
            own = {name.removeprefix(start): t for name, t in tensors.items() if name.startswith(start)}
            _load(block, block.weights(own, products))
        if arch.layers - 1 in layers:
            self.norm = nn.RMSNorm(arch.hidden, eps=arch.norm_epsilon)
            self.head = products.column(arch.hidden, arch.vocab // products.parts)
            _load(self.norm, {"weight": tensors["head.norm.weight"]})
            _load(self.head, {"weight": products.mine(tensors["head.lm_head.weight"], 0)})
        frequencies = ROTARY_BASE ** (-torch.arange(0, arch.head_dim, 2, dtype=torch.float64) / arch.head_dim)
        angles = torch.outer(torch.arange(seq_len, dtype=torch.float64), frequencies).repeat(1, 2)
        self.register_buffer("cos", angles.cos().float(), persistent=False)
        self.register_buffer("sin", angles.sin().float(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Token ids or the values before the first layer → logits or the values behind the last one."""
        if self.embed is not None:
            x = self.embed(x)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return x if self.head is None else self.head(self.norm(x))


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """The sum over all labels that count."""
    return functional.cross_entropy(
        logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum"
    )


def _load(module: nn.Module, weights: Mapping[str, Tensor]) -> None:
    module.load_state_dict({name: weight.contiguous() for name, weight in weights.items()})


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin
