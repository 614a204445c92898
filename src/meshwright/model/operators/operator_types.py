"""Operators: the smallest units that lowering, cost and memory know.

A block is a chain of operators. Every operator has a *place*: how its tokens are spread over the ranks of a stage:

* ``sequence``: tokens are cut over cp, and over tp too when sequence parallelism is on (norms, residuals);
* ``tensor``: tokens are cut over cp only, widths are cut over tp (between ``EnterTensor``/``LeaveTensor``);
* ``expert``: tokens have been sent to their experts (between ``Dispatch`` and ``Combine``).

Most operators process the tokens of a sequence's text. Those of an encoder process its own: patches, or a second text
(``Operator.tokens``). The boundary operators have no arithmetic; lowering turns them into collectives. So a new kind of
layer is a new chain, and needs no new lowering. All widths are those of the whole model, before any cut; bytes and
FLOPs are per token of the global sequence. A multiply-add counts as 2 FLOPs.
"""

from dataclasses import dataclass
from math import prod
from typing import Any, Literal

Place = Literal["sequence", "tensor", "expert"]
Split = Literal["column", "row", "whole"]
Tokens = Literal["text", "encoder"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A tensor of weights. ``tp_dim`` is the dim cut over tp (etp for experts), ``ep_dim`` the one cut over ep.

    ``vocab_dim`` marks the dim that stacks pad to a multiple of their choosing; a parameter not ``trained`` is frozen.
    ``storage`` is the type of a frozen one (``workload/base_types.py``); None: as the stack stores parameters.
    ``of_each_replica``: every data-parallel rank trains another tensor of this name and shape.
    """

    name: str
    shape: tuple[int, ...]
    tp_dim: int | None = None
    ep_dim: int | None = None
    vocab_dim: int | None = None
    trained: bool = True
    storage: str | None = None
    of_each_replica: bool = False

    @property
    def elements(self) -> int:
        """Number of elements of the whole tensor."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """The common fields of operators: a name that is unique in its block, a place, parameters.

    ``reads`` names the operators whose results it uses, empty for the previous one (``data_flow.py``).
    ``recompute`` lists the recomputation sets that contain it (``core_attn``, ``mlp``, …, as a plan names them).
    ``borrows`` are parameters of other blocks that it uses and trains too: the embedding's table or the
    head's. ``begins_stream``: later residuals add to its result. ``leaves``: its result is the block's, not the
    last one's. ``frozen``: its weights have no gradients, and it keeps nothing for them. ``tokens``: whose tokens are
    its rows; ``merged`` tokens of an encoder are one row. ``publishes``: later blocks of the stage find its result
    under this name (``data_flow.py``).
    """

    name: str
    place: Place = "sequence"
    parameters: tuple[Parameter, ...] = ()
    reads: tuple[str, ...] = ()
    recompute: tuple[str, ...] = ()
    borrows: tuple[Parameter, ...] = ()
    begins_stream: bool = False
    leaves: bool = False
    frozen: bool = False
    tokens: Tokens = "text"
    merged: int = 1
    publishes: str = ""

    @property
    def trains(self) -> bool:
        """True if the operator has weight gradients."""
        return any(p.trained for p in (*self.parameters, *self.borrows))

    def flops_per_token(self, positions: float) -> float:
        """Return the forward FLOPs per token; ``positions`` is the mean number of positions that a token attends to."""
        return 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedding(Operator):
    """Table look-up, vocabulary cut over tp: token ids (tokens) → (tokens, hidden)."""

    vocab: int
    hidden: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Norm(Operator):
    """RMSNorm or LayerNorm over ``width`` elements, ``instances`` times a token (head norms: the heads)."""

    width: int
    instances: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear(Operator):
    """Linear map y = x·Wᵀ (+ b): (tokens, inputs) → (tokens, outputs).

    ``split`` is the width cut over tp: column = outputs, row = inputs, whole = neither.
    ``saves_input`` is False if another operator already saves the input for the backward pass. ``keeps_part``: where
    that one gathers the input over tp for its weights, this one keeps its rank's part until then. ``shared_input``: the
    stage holds the input for all its blocks.
    """

    inputs: int
    outputs: int
    split: Split
    saves_input: bool = True
    keeps_part: bool = False
    shared_input: bool = False

    def flops_per_token(self, positions: float) -> float:
        """Return 2·inputs·outputs."""
        return 2.0 * self.inputs * self.outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention(Operator):
    """Attention softmax(QKᵀ)V; heads are cut over tp. ``window`` is the sliding window in positions, None = none.

    ``kv_width`` is the elements that one token adds to a key-value cache (latent attention: its compressed
    form); ``cache_over_tp``: tp cuts the cache. ``dropout``: on the attention probabilities.

    ``keys``: whose tokens are its keys, all of them unless it is ``causal``. ``biased``: a score for each head, query
    and key is added, which it reads too. ``merge`` > 0: tokens are patches of images, in squares of so many by so many,
    and attend within their image, or within windows of ``side`` by ``side`` patches.
    """

    heads: int
    kv_heads: int
    qk_dim: int
    v_dim: int
    window: int | None
    kv_width: int
    cache_over_tp: bool = True
    dropout: bool = False
    causal: bool = True
    keys: Tokens = "text"
    biased: bool = False
    merge: int = 0
    side: int | None = None

    @property
    def plain(self) -> bool:
        """True for causal attention within one text, without added scores."""
        return self.causal and self.keys == "text" and not self.biased

    def flops_per_token(self, positions: float) -> float:
        """Return 2·heads·positions·(qk_dim + v_dim)."""
        return 2.0 * self.heads * positions * (self.qk_dim + self.v_dim)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearAttention(Operator):
    """Linear attention o_t = q_t·S_t with S_t = λ·S_{t−1} + k_tᵀ·v_t, one state of head_dim² and one λ for each head.

    Heads are cut over tp. It reads queries, keys, values and a gate concatenated, and passes the gate on. Kernels
    process a sequence in blocks of ``block`` positions, within which the product is (QKᵀ∘decay)·V (lightning
    attention, arXiv 2405.17381).
    """

    heads: int
    head_dim: int
    block: int

    def flops_per_token(self, positions: float) -> float:
        """Return the recurrence's 4·heads·head_dim²; the products within blocks are extra work of the kernel."""
        return 4.0 * self.heads * self.head_dim**2

    @property
    def width(self) -> int:
        """Width of queries, keys, values or gate, all heads together."""
        return self.heads * self.head_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedNorm(Operator):
    """Gated norm σ(gate)·RMSNorm(x) over ``width`` elements cut over tp: a row's mean of squares is summed over tp.

    Several ``parts`` of a row are normed each by itself and cut over tp, so that nothing is summed.
    """

    width: int
    parts: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedInputNorm(GatedNorm):
    """Norm of a gated value, RMSNorm(x·silu(gate)), over ``width`` elements cut over tp as those of ``GatedNorm``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSpace(Operator):
    """Causal filter and recurrence of Mamba-2: h_t = exp(Δ_t·A)·h_{t−1} + Δ_t·B_tᵀ·x_t and y_t = C_t·h_t + D·x_t.

    Heads are cut over tp; B and C, of ``state`` elements each, are the same for all heads, so that each rank filters
    them whole. Several ``groups`` of heads have B and C of their own, and are cut with them. It reads a gate, x and Δ
    concatenated, then B and C, and passes the gate on. Kernels process a sequence in blocks of ``block`` positions
    (state-space duality, arXiv 2405.21060, section 6). ``delta_rule``: the state's answer to a key is subtracted before
    a value is added (arXiv 2412.06464).
    """

    heads: int
    head_dim: int
    state: int
    filter_length: int
    block: int
    groups: int = 1
    delta_rule: bool = False

    def flops_per_token(self, positions: float) -> float:
        """Return the recurrence's 4·width·state, 6 with the delta rule.

        Blocks' products are extra work of the kernel, the filter is below 0.1 %.
        """
        return self.flops_per_state_element * self.width * self.state

    @property
    def flops_per_state_element(self) -> float:
        """FLOPs of a token for each element of the state: it is written and read, and read once more by the key."""
        return 6.0 if self.delta_rule else 4.0

    def shared_groups(self, tp: Any) -> Any:
        """Return the groups whose B and C are on a rank: one is whole on each, several are cut over tp, or an array."""
        return self.groups / tp if self.groups > 1 else 1

    @property
    def width(self) -> int:
        """Width of x or of the gate, all heads together."""
        return self.heads * self.head_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class Activation(Operator):
    """Elementwise non-linearity; gated: (tokens, 2·width) → (tokens, width).

    ``function``: its own one (``model/numerics.py``), empty for the model's.
    """

    width: int
    gated: bool
    function: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual(Operator):
    """Residual addition x + f(x), with dropout on f(x) if the model has it.

    ``stream`` names the operator whose result x is, if that is not the current stream.
    """

    width: int
    dropout: bool = False
    stream: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchEmbedding(Linear):
    """Linear map of the patches of a sequence's images, which are inputs of the model: they have no gradient."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionBias(Operator):
    """Scores by relative position: (heads, tokens, tokens) from a table (buckets, heads), heads cut over tp.

    Half of the buckets are for keys after the query if it is ``bidirectional``; distances share one bucket from
    ``max_distance`` on (T5, arXiv 1910.10683, section 2.1).
    """

    heads: int
    buckets: int
    max_distance: int
    bidirectional: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedValue(Operator):
    """The residual stream (tokens, width) unchanged, held by the stage for all later blocks until its backward pass."""

    width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePatches(Operator):
    """Concatenate ``merged`` neighbouring patches of ``width`` elements: a view."""

    width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceImages(Operator):
    """Put the rows of images (merged patches, width) where they stand in the text, zeros elsewhere: (tokens, width).

    ``merge`` and ``side`` say in which order the patches come, as for ``Attention``.
    """

    width: int
    merge: int
    side: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinImages(Operator):
    """Take the rows of images from the first result that it reads and the rows of text from the second.

    ``merge`` × ``merge`` patches are a row.
    """

    width: int
    merge: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertLinear(Operator):
    """Grouped matmul over the experts: each token passes ``experts_per_token`` of ``experts`` of them."""

    inputs: int
    outputs: int
    split: Split
    experts: int
    experts_per_token: int

    def flops_per_token(self, positions: float) -> float:
        """Return 2·experts_per_token·inputs·outputs."""
        return 2.0 * self.experts_per_token * self.inputs * self.outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptedMatrix:
    """A matrix that an adapter adds to, by its name without ``.weight``; its outputs begin at ``start`` of those of
    its operator.
    """

    name: str
    start: int
    outputs: int

    @property
    def down(self) -> str:
        """The name of A: (rank, inputs)."""
        return f"{self.name}.lora_A.weight"

    @property
    def up(self) -> str:
        """The name of B: (outputs, rank)."""
        return f"{self.name}.lora_B.weight"


@dataclass(frozen=True, slots=True, kw_only=True)
class LowRank(Operator):
    """Low-rank products added to the result of a linear operator: y + scale·(x·Aᵀ)·Bᵀ for each of its ``matrices``.

    It reads that operator's result y, then the input x that both share, and keeps x if it ``saves_input``. ``split`` is
    that of the operator: column cuts B along the outputs, row cuts A along the inputs. So no exchange is added: what tp
    does not cut of A and B has partial gradients on each of its ranks.
    """

    inputs: int
    outputs: int
    split: Split
    rank: int
    scale: float
    matrices: tuple[AdaptedMatrix, ...]
    saves_input: bool = True

    @property
    def adapted(self) -> str:
        """The name of the operator whose result it adds to."""
        return self.reads[0]

    @property
    def adapted_outputs(self) -> int:
        """Outputs of all its matrices together."""
        return sum(matrix.outputs for matrix in self.matrices)

    @property
    def of_each_replica(self) -> bool:
        """True if every data-parallel rank trains pairs of its own."""
        return any(parameter.of_each_replica for parameter in self.parameters)

    def rank_dim(self, name: str) -> int:
        """Return the dim of a parameter along which its rank lies: the rows of A, the columns of B."""
        return -2 if any(name == matrix.down for matrix in self.matrices) else -1

    def flops_per_token(self, positions: float) -> float:
        """Return 2·rank·(inputs + outputs) of each matrix."""
        return 2.0 * self.rank * (len(self.matrices) * self.inputs + self.adapted_outputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertLowRank(LowRank):
    """Low-rank products of each expert: each token passes those of ``experts_per_token`` of ``experts``."""

    experts: int
    experts_per_token: int

    def flops_per_token(self, positions: float) -> float:
        """Return the FLOPs of ``experts_per_token`` experts."""
        return self.experts_per_token * LowRank.flops_per_token(self, positions)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertActivation(Operator):
    """The activation between the two grouped matmuls, on ``experts_per_token`` rows a token."""

    width: int
    gated: bool
    experts_per_token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss(Operator):
    """Softmax cross-entropy over the vocabulary: (tokens, vocab) → (tokens), multiplied by ``weight``."""

    vocab: int
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EnterTensor(Operator):
    """Boundary sequence → tensor of (tokens, width): all-gather over tp with sequence parallelism."""

    width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveTensor(Operator):
    """Boundary tensor → sequence: partial sums over tp, reduce-scatter with sequence parallelism."""

    width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch(Operator):
    """Boundary sequence → expert: each token's ``width`` elements go to its ``experts_per_token`` experts.

    They are in ``chosen_groups`` of ``groups`` equal groups of experts.
    """

    width: int
    experts: int
    experts_per_token: int
    groups: int = 1
    chosen_groups: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Combine(Operator):
    """Boundary expert → sequence: the weighted results return the way that ``Dispatch`` sent the tokens."""

    width: int
    experts: int
    experts_per_token: int
    groups: int = 1
    chosen_groups: int = 1
