"""Dense decoders of Llama's, Qwen's and GPT's kinds from native PyTorch modules: (batch, sequence, hidden)."""

import torch
from torch import Tensor, nn
from torch.distributed._functional_collectives import reduce_scatter_tensor_autograd
from torch.distributed.tensor import DTensor
from torch.nn import functional

from meshwright.model.architecture import Architecture
from tracked_torch.kernels import FusedRMSNorm, Rotary, SwiGLU


def _norm(arch: Architecture, width: int) -> nn.Module:
    return FusedRMSNorm(width) if arch.norm == "rmsnorm" else nn.LayerNorm(width)


class Attention(nn.Module):
    """Grouped-query attention by PyTorch's flash kernel, which saves queries, keys, values, output and statistics."""

    def __init__(self, arch: Architecture) -> None:
        super().__init__()
        self.head_dim, self.rotary = arch.head_dim, arch.positions == "rope"
        width, kv_width = arch.heads * arch.head_dim, arch.kv_heads * arch.head_dim
        self.q = nn.Linear(arch.hidden, width, bias=arch.qkv_bias)
        self.k = nn.Linear(arch.hidden, kv_width, bias=arch.qkv_bias)
        self.v = nn.Linear(arch.hidden, kv_width, bias=arch.qkv_bias)
        self.o = nn.Linear(width, arch.hidden, bias=arch.output_bias)
        self.q_norm, self.k_norm = (
            _norm(arch, arch.head_dim) if arch.qk_norm else nn.Identity() for _ in range(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return a tensor of the input's shape."""
        q, k, v = (layer(x).unflatten(-1, (-1, self.head_dim)) for layer in (self.q, self.k, self.v))
        q, k = self.q_norm(q), self.k_norm(k)
        if self.rotary:
            q, k = Rotary.apply(q), Rotary.apply(k)
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o(y.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """SwiGLU, or one product with GELU behind it."""

    def __init__(self, arch: Architecture) -> None:
        super().__init__()
        self.up = nn.Linear(arch.hidden, arch.intermediate, bias=arch.mlp_bias)
        self.gate = nn.Linear(arch.hidden, arch.intermediate, bias=arch.mlp_bias) if arch.gated else None
        self.down = nn.Linear(arch.intermediate, arch.hidden, bias=arch.mlp_bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return a tensor of the input's shape."""
        if self.gate is None:
            return self.down(functional.gelu(self.up(x)))
        return self.down(SwiGLU.apply(self.gate(x), self.up(x)))


class Block(nn.Module):
    """One layer."""

    def __init__(self, arch: Architecture) -> None:
        super().__init__()
        self.input_norm, self.post_norm = _norm(arch, arch.hidden), _norm(arch, arch.hidden)
        self.attention, self.mlp = Attention(arch), FeedForward(arch)

    def forward(self, x: Tensor) -> Tensor:
        """Return a tensor of the input's shape."""
        x = x + self.attention(self.input_norm(x))
        return x + self.mlp(self.post_norm(x))


class Embedding(nn.Module):
    """Table look-up, with learned positions where the model has them.

    With tp each rank looks up its rows of the table, and their sum is cut over sequences (DTensor's own look-up makes
    the gradient of the whole table on every rank).
    """

    def __init__(self, arch: Architecture) -> None:
        super().__init__()
        self.tokens = nn.Embedding(arch.vocab, arch.hidden)
        learned = arch.positions == "learned"
        self.positions = nn.Embedding(arch.max_positions, arch.hidden) if learned else None

    def forward(self, tokens: Tensor) -> Tensor:
        """Token ids (batch, sequence) → (batch, this rank's part of the sequence, hidden)."""
        table = self.tokens.weight
        if isinstance(table, DTensor):
            x = functional.embedding(tokens, table.to_local())
            x = reduce_scatter_tensor_autograd(x, "sum", 1, table.device_mesh)
        else:
            x = functional.embedding(tokens, table)
        if self.positions is None:
            return x
        return x + self.positions(torch.arange(x.shape[1], device=x.device))


class Output(nn.Module):
    """Final norm and head."""

    def __init__(self, arch: Architecture) -> None:
        super().__init__()
        self.norm = _norm(arch, arch.hidden)
        self.head = nn.Linear(arch.hidden, arch.vocab, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, sequence, hidden) → (batch, sequence, vocabulary)."""
        return self.head(self.norm(x))


class Decoder(nn.Module):
    """Token ids → logits."""

    def __init__(self, arch: Architecture) -> None:
        super().__init__()
        self.embed = Embedding(arch)
        self.layers = nn.ModuleList(Block(arch) for _ in range(arch.layers))
        self.output = Output(arch)

    def tie(self) -> None:
        """Let the head read the embedding's table."""
        self.embed.tokens.weight = self.output.head.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, sequence) → (batch, sequence, vocabulary)."""
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.output(x)
