"""TokenRing: queries circulate, keys and values stay, partial results return directly (arXiv 2412.20501)."""

from meshwright.model.operators.operator_types import Attention
from meshwright.plans.context_parallel_forms.form_kind import ContextFormKind, Elements, Exchange, FormTexts


def _forward(op: Attention) -> tuple[Exchange, ...]:
    """Send queries round the ring; outputs return with the statistic of each row."""
    return _two_ways(Elements(op.heads * op.qk_dim), Elements(op.heads * op.v_dim, op.heads))


def _backward(op: Attention) -> tuple[Exchange, ...]:
    """Send queries, outputs, their gradients and statistics round; gradients of queries return."""
    return _two_ways(
        Elements(op.heads * (op.qk_dim + 2 * op.v_dim), op.heads), Elements(op.heads * op.qk_dim)
    )


def _two_ways(there: Elements, back: Elements) -> tuple[Exchange, ...]:
    return Exchange("ring", there), Exchange("ring", back, "returns")


token_ring = ContextFormKind(
    texts=FormTexts(
        forward="queries around the ring; outputs and statistics straight back",
        backward="queries, outputs and gradients around the ring; gradients of queries back",
        memory="two ranks' queries",
        source="arXiv 2412.20501",
    ),
    forward=_forward,
    backward=_backward,
    buffer=lambda op: Elements(4 * op.heads * (op.qk_dim + op.v_dim), 2 * op.heads),
    kernel="meshwright.runtime.kernels.context_parallel.token_ring:TokenRing",
)
