"""The attention part of a decoder layer, or what stands in its place, as a chain of operators.

Plain (multi-head, grouped): norm → enter → qkv → [head norms] → attention → o → leave → [norm] → residual.
Latent (DeepSeek-V2, arXiv 2405.04434): the down-projections and their norms run on sequence shards, only the
compressed rows are gathered, and the up-projections are cut by heads.
Linear (MiniMax-01, arXiv 2501.08313): norm → enter → qkv and gate → attention → gated norm → o → leave → residual.
Mamba-2: ``model/operators/mamba.py``.
Rotary embeddings, soft caps and scales are elementwise and belong to the attention operator's kernel; their FLOPs are
not counted (< 0.1 %).
"""

from meshwright.model.architecture import Architecture, LatentAttention, Mixer
from meshwright.model.operators.mamba import state_space_part
from meshwright.model.operators.operator_types import (
    Attention,
    EnterTensor,
    GatedNorm,
    LeaveTensor,
    Linear,
    LinearAttention,
    Norm,
    Operator,
    Parameter,
    Residual,
)
from meshwright.model.operators.parameter_tensors import linear_tensors, norm_tensors

ATTENTION_RESIDUAL = "attention_residual"
ENTERED = "enter_attention"
"""The edge by which a layer's tokens enter the tensor-parallel region."""


def attention_part(arch: Architecture, window: int | None, mixer: Mixer = "softmax") -> tuple[Operator, ...]:
    """Return the operators by which one layer mixes tokens; ``window`` in positions, None = all."""
    norm = Norm(
        name="input_norm",
        width=arch.hidden,
        parameters=norm_tensors("input_layernorm", arch.hidden, arch.norm),
    )
    width = arch.heads * arch.v_head_dim
    if mixer == "linear":
        return norm, *_linear(arch), *_output(arch, "linear_attn.o_proj", width)
    if mixer == "state-space":
        assert arch.state_space is not None
        part = state_space_part(arch.state_space, arch.hidden)
        return norm, *part, *_output(arch, "mamba.out_proj", arch.state_space.width)
    core = _plain(arch, window) if arch.latent is None else _latent(arch, arch.latent, window)
    return norm, *core, *_output(arch, "self_attn.o_proj", width)


def _linear(arch: Architecture) -> tuple[Operator, ...]:
    assert arch.linear is not None
    width = arch.heads * arch.head_dim
    return (
        EnterTensor(name=ENTERED, width=arch.hidden),
        Linear(
            name="qkv",
            place="tensor",
            inputs=arch.hidden,
            outputs=4 * width,
            split="column",
            parameters=tuple(
                tensor
                for name in ("q_proj", "k_proj", "v_proj", "gate_proj")
                for tensor in linear_tensors(f"linear_attn.{name}", width, arch.hidden, "column", False)
            ),
        ),
        LinearAttention(
            name="attention",
            place="tensor",
            heads=arch.heads,
            head_dim=arch.head_dim,
            block=arch.linear.block,
        ),
        GatedNorm(
            name="attention_norm",
            place="tensor",
            width=width,
            parameters=(Parameter("linear_attn.norm.weight", (width,), tp_dim=0),),
        ),
    )


def _plain(arch: Architecture, window: int | None) -> tuple[Operator, ...]:
    kv_width = arch.kv_heads * arch.head_dim
    widths = {"q_proj": arch.heads * arch.head_dim, "k_proj": kv_width, "v_proj": kv_width}
    widths |= {"gate_proj": arch.heads * arch.head_dim} if arch.attention_gate else {}
    qkv = Linear(
        name="qkv",
        place="tensor",
        inputs=arch.hidden,
        outputs=sum(widths.values()),
        split="column",
        parameters=tuple(
            tensor
            for name, width in widths.items()
            for tensor in linear_tensors(f"self_attn.{name}", width, arch.hidden, "column", arch.qkv_bias)
        ),
    )
    enter = EnterTensor(name=ENTERED, width=arch.hidden)
    return enter, qkv, *_head_norms(arch), _attention(arch, window, 2 * kv_width, cache_over_tp=True)


def _head_norms(arch: Architecture) -> tuple[Operator, ...]:
    """Return the norms of queries and keys; one over all heads also sums squares over tp, which is not counted."""
    if not arch.qk_norm:
        return ()
    norms = (("q_norm", arch.heads), ("k_norm", arch.kv_heads))
    if arch.qk_norm_over_heads:
        sizes = [(name, heads * arch.head_dim, 1) for name, heads in norms]
    else:
        sizes = [(name, arch.head_dim, heads) for name, heads in norms]
    return tuple(
        Norm(
            name=name,
            place="tensor",
            width=width,
            instances=instances,
            parameters=norm_tensors(f"self_attn.{name}", width, arch.norm),
        )
        for name, width, instances in sizes
    )


def _latent(arch: Architecture, latent: LatentAttention, window: int | None) -> tuple[Operator, ...]:
    q_width = arch.heads * (latent.qk_nope_dim + latent.qk_rope_dim)
    kv_width = arch.heads * (latent.qk_nope_dim + latent.v_dim)
    compressed = latent.kv_rank + latent.qk_rope_dim
    if latent.q_rank is None:
        down: tuple[Operator, ...] = ()
        q_inputs, q_name = arch.hidden, "q_proj"
    else:
        down = (
            _down(arch, "q_a", "q_a_proj", latent.q_rank, saves_input=True),
            _rank_norm(arch, "q_a_norm", "q_a_layernorm", latent.q_rank),
        )
        q_inputs, q_name = latent.q_rank, "q_b_proj"
    return (
        *down,
        _down(arch, "kv_a", "kv_a_proj_with_mqa", compressed, saves_input=False),
        _rank_norm(arch, "kv_a_norm", "kv_a_layernorm", latent.kv_rank),
        EnterTensor(
            name=ENTERED,
            width=q_inputs + compressed,
            reads=("q_a_norm" if down else "input_norm", "kv_a_norm"),
        ),
        _up("q_b", q_name, q_width, q_inputs),
        _up("kv_b", "kv_b_proj", kv_width, latent.kv_rank),
        _attention(arch, window, compressed, cache_over_tp=False, reads=("q_b", "kv_b")),
    )


def _down(arch: Architecture, name: str, tensor: str, outputs: int, *, saves_input: bool) -> Linear:
    tensors = linear_tensors(f"self_attn.{tensor}", outputs, arch.hidden, "whole", arch.qkv_bias)
    return Linear(
        name=name,
        inputs=arch.hidden,
        outputs=outputs,
        split="whole",
        reads=("input_norm",),
        saves_input=saves_input,
        parameters=tensors,
    )


def _up(name: str, tensor: str, outputs: int, inputs: int) -> Linear:
    tensors = linear_tensors(f"self_attn.{tensor}", outputs, inputs, "column", False)
    return Linear(
        name=name,
        place="tensor",
        inputs=inputs,
        outputs=outputs,
        split="column",
        reads=(ENTERED,),
        parameters=tensors,
    )


def _rank_norm(arch: Architecture, name: str, tensor: str, width: int) -> Norm:
    return Norm(name=name, width=width, parameters=norm_tensors(f"self_attn.{tensor}", width, arch.norm))


def _attention(
    arch: Architecture,
    window: int | None,
    kv_width: int,
    *,
    cache_over_tp: bool,
    reads: tuple[str, ...] = (),
) -> Attention:
    sinks = (Parameter("self_attn.sinks", (arch.heads,), tp_dim=0),) if arch.attention_sinks else ()
    return Attention(
        name="attention",
        place="tensor",
        heads=arch.heads,
        kv_heads=arch.kv_heads,
        qk_dim=arch.head_dim,
        v_dim=arch.v_head_dim,
        window=window,
        kv_width=kv_width,
        cache_over_tp=cache_over_tp,
        dropout=arch.dropout,
        reads=reads,
        parameters=sinks,
    )


def _output(arch: Architecture, tensor: str, width: int) -> tuple[Operator, ...]:
    """Return the projection of ``width`` elements to the stream, and the residual."""
    bias = arch.output_bias and not tensor.startswith("mamba")
    o = Linear(
        name="o",
        place="tensor",
        inputs=width,
        outputs=arch.hidden,
        split="row",
        parameters=linear_tensors(tensor, arch.hidden, width, "row", bias),
    )
    leave = LeaveTensor(name="leave_attention", width=arch.hidden)
    stream = "input_norm" if arch.residual_after_norm else None
    residual = Residual(name=ATTENTION_RESIDUAL, width=arch.hidden, dropout=arch.dropout, stream=stream)
    if arch.norms_per_layer == 2:
        return o, leave, residual
    tensors = norm_tensors("post_attention_layernorm", arch.hidden, arch.norm)
    return o, leave, Norm(name="post_attention_norm", width=arch.hidden, parameters=tensors), residual
