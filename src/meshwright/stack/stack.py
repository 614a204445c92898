"""The stack noun: facts about the training framework, read by the cost model and the exporters.

A stack file is ``stack/files/NAME-RELEASE.yaml``; its keys are the fields below. Facts come from the stack's
source or documentation (``source`` says which); the two fitted numbers are named as such.
"""

from dataclasses import Field, dataclass, fields
from typing import Any, Literal

from meshwright.plans.context_parallel import SequencePieces
from meshwright.plans.forms.short import Gather
from meshwright.schedules.choice import StepValidation
from meshwright.stack.device_recipe import NO_RECIPE, DeviceRecipe
from meshwright.stack.stack_model import StackModel
from meshwright.stack.state_offload import StateOffload
from meshwright.workload.fp8_recipe import Fp8Recipe
from meshwright.workload.optimizer_choice import ADAMW, Optimizer
from meshwright.workload.workload import Workload

OWN_STACK = "meshwright"
"""The stack of Meshwright's own runtime."""
AttentionKernel = Literal["flash", "flash3", "fused-softmax", "eager"]
GradientReduction = Literal["reduce-scatter", "all-reduce"]
LayerChoice = Literal["layout", "recompute"]
RecomputedLayers = Literal["any", "first"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """Facts about one framework at one release.

    name, release, source
        what it is and where the facts were read.
    attention
        kernel class of the attention core.
    fused_norm, fused_softmax
        one kernel, or a chain of eager ones.
    dropout
        its recipes train GPT models with dropout unless they say otherwise.
    loss_vocab_parallel
        the loss works on vocabulary shards; False: every tp rank holds the whole vocabulary's logits.
    logit_bytes
        bytes per logit that live at the loss (bf16 logits, fp32 copy, gradient).
    gradient_bytes
        bytes per element of the main gradient buffer.
    parameter_bytes, optimizer_bytes
        bytes per element of the working parameter and of master copy and moments together (AdamW in fp32: 12;
        FSDP keeps the fp32 parameter itself sharded and 8 bytes of moments).
    gradient_types, reduce_types, gather_types, master_types, moment_types
        element types that a plan may write for these states besides the usual ones (``stack/state_types.py``);
        ``16-bit``: the one that the precision has.
    tied_types, joint_types
        keys of ``dtypes`` of which one that a plan does not write follows the others; keys of which all change or none.
    keeps_master_remainder
        where the optimizer's states are narrower than usual, an fp32 master copy beside a bf16 parameter is only its
        lower half.
    parameter_wire_bytes
        bytes per element of a gather of parameters.
    optimizer_traffic_bytes, scaled_moments, base
        what a plan's ``dtypes`` and optimizer change: bytes that a step moves per element beyond those of AdamW's fp32
        states, moments with an fp32 scale for each piece that a rank owns; and the stack without them.
    optimizer, matrix_optimizer_bytes, matrix_traffic_bytes
        the plan's optimizer; where it is Muon, ``optimizer_bytes`` and ``optimizer_traffic_bytes`` of the matrices that
        it takes, while those without a prefix are of the rest.
    optimizers, muon_shardings
        optimizers that it has, and the shardings that Muon runs under.
    muon_scale
        the scale of Muon where a plan says nothing (``workload/optimizers/muon.py``).
    adapter_forms, base_types
        forms of adapters that it trains itself, and quantised types of the frozen matrices (``workload/adapter.py``).
    frozen_apart
        frozen parameters are gathered apart from trained ones, as they are stored.
    joint_matrices
        operators whose matrices Muon orthogonalises as one, stacked along their outputs.
    narrow_shardings
        shardings under which the optimizer's states may have other types; none: all.
    fused_gradient_accumulation
        the kernel of a weight gradient adds to the main gradient; False: a pass of its own adds them.
    gradient_reduction, gradient_communication_bytes
        how gradients reach a sharded optimizer under zero1 and zero2 (all-reduce: every rank has their sum for a while
        and keeps its part of it; unsharded ones are always all-reduced, those of zero3 never), and bytes per element
        on the wire.
    reduces_each_micro_batch
        shardings under which the gradients of every micro-batch are reduced as they come; under others, and wherever a
        pipeline runs, the sum of them is. With ``gather: per-layer`` every micro-batch's are. (zero1 would be zero2.)
    overlap_gradient_reduction
        reductions overlap the backward pass of the last micro-batch.
    overlap_parameter_gather
        sharded parameters are gathered during the next forward pass (zero1, zero2).
    zero2_cuts_parameters
        zero2 cuts parameters too, and gathers them once in a micro-batch, once a step under a pipeline (FSDP).
    gathers, pipeline_gathers
        when parameters under zero3 are gathered, as a plan may say it, without and with a pipeline; the usual way
        first. Per-unit: parameters are gathered and gradients reduced once for each unit of micro-batches that go
        through a pipeline schedule together (ZeroPP).
    gathers_layers_ahead
        what is gathered once in a micro-batch comes layer by layer, one ahead; False: a stage at once, before its
        forward pass.
    validates_step_afterwards
        with split backward passes a rank takes its optimizer step at once; the norm of all gradients follows with
        the next step's messages, and a step that it forbids is undone. Steps then overlap. So it is where a plan says
        nothing else.
    step_validations
        what a plan may say of it.
    undoes_step_in_place
        a step is undone by its inverse; False: from copies of what it overwrites.
    overlap_p2p
        pipeline messages overlap compute in interleaved schedules.
    partitioned_p2p
        pipeline messages are cut over tp.
    sequence_parallel
        tp ranks cut sequences between their matrix products; False: each of them holds whole ones there.
    tp_regathers_input
        with sequence parallelism the backward pass gathers the column-parallel input again.
    ties_shards
        of a table that two stages share each rank sums up the shard of the gradient that it updates; False: all of it.
    orders_experts
        a plan may say which experts lie on which rank; False: as the model has them.
    deduplicates_exchange
        a token goes once to a node with some of its experts, and once to each rank there (DeepEP, HybridEP).
    overlap_expert_exchange
        exchanges with the experts overlap the compute of another micro-batch's pass over the same layers.
    capacity_scopes
        scopes in which it bounds the tokens of an expert (``workload/expert_capacity.py``); none: no bound.
    vocab_multiple
        the vocabulary is padded to a multiple of this × tp.
    schedules, shardings, recomputes
        what the stack can run, in our words; ``recomputes`` also names the single operators that it knows.
    schedule_knobs
        what of a schedule a plan may choose besides its name.
    written_lists
        runs lists of passes that somebody wrote.
    vocabularies
        forms in which it spreads embedding and head over pipeline ranks.
    pipeline_shardings
        which of the shardings run together with pp > 1.
    selective_recompute
        the recomputation sets that ``selective`` means in this stack.
    selective_keeps_products
        it then keeps results of attention and of every second product instead (``program/operator_recompute.py``);
        what runs again is still counted by the sets.
    norm_products
        products whose kernels compute the norm before them, too (``model/transforms/norm_kernels.py``).
    fp8_recipes
        recipes of fp8 (``workload/fp8_recipe.py``), the usual one first.
    varies_by_layer
        what may differ from one range of layers to another: ``layout`` (degrees, context forms, sharding) and
        ``recompute``; what is not named is the same for all layers.
    recomputed_layers
        layers that may recompute other things than the rest: ``any``, or ``first``: whole layers, the first n of each
        stage, with one n for all stages.
    uneven_shares
        data-parallel replicas may take unlike numbers of sequences, and ranks unlike shares of the sharded states.
    offloads_activations
        keeps activations of a share of each stage's layers on the host, from F to the backward pass.
    state_offloads, keeps_offloaded_gradients
        ways to keep model states on the host (``stack/state_offload.py``; none: all stay on the devices), and whether
        gradients for an optimizer there are summed on the device until the step; False: they leave as they come.
    synchronises
        replicas may exchange other things than gradients, less often, or encoded (``plans/synchronisation``).
    encoders
        trains models with an encoder, of a second text or of images.
    keeps_chunks
        keeps all model states in equal chunks that move between device and host (PatrickStar).
    chooses_sequence_parallelism
        a plan may leave sequences whole with tp > 1; False: tp cuts them, or the stack has one way.
    rank_orders
        orders of ranks other than the usual one, axes from the fastest to the slowest.
    contexts
        forms of context parallelism; ``ring+ulysses``: heads exchanged inside of groups that are a ring.
    sequence_pieces
        which pieces of a sequence a rank of cp has: one from either end, or neighbouring ones.
    copies_key_value_heads
        tp may be a multiple of the key-value heads, which are then copied; plans do not describe it yet.
    tp_families, ep_families
        families of models that tp or ep cuts as a plan says; None: all.
    models, device_recipes
        the models that it has (``stack/stack_model.py``; None: all), and what its recipes do on families of devices.
    recomputes_exchanges
        selective recomputation keeps nothing that an exchange has brought: it repeats all exchanges of a layer's
        forward pass; False: only those that recomputed operators begin with or make themselves.
    weights_expert_activations
        the router's weights multiply what enters an expert's second product; its result is not kept.
    host_s_per_layer
        launch time of one layer's forward on the host (fitted).
    expert_host_s
        what experts add to it (fitted); 0: unknown.
    elementwise_factor
        memory-bound passes relative to the model's count of bytes (fitted).
    fsdp_communication_factor
        sharded-parameter collectives relative to the topology's time.
    """

    name: str
    release: str
    source: str
    attention: AttentionKernel = "flash"
    fused_norm: bool = True
    fused_softmax: bool = True
    dropout: bool = False
    loss_vocab_parallel: bool = True
    logit_bytes: int = 10
    parameter_bytes: int = 2
    gradient_bytes: int = 4
    optimizer_bytes: int = 12
    gradient_types: tuple[str, ...] = ()
    reduce_types: tuple[str, ...] = ()
    gather_types: tuple[str, ...] = ()
    master_types: tuple[str, ...] = ()
    moment_types: tuple[str, ...] = ()
    tied_types: tuple[tuple[str, ...], ...] = ()
    joint_types: tuple[tuple[str, ...], ...] = ()
    narrow_shardings: tuple[str, ...] = ()
    keeps_master_remainder: bool = False
    parameter_wire_bytes: int = 2
    optimizer_traffic_bytes: int = 0
    scaled_moments: int = 0
    base: "Stack | None" = None
    optimizer: Optimizer = ADAMW
    matrix_optimizer_bytes: int = 0
    matrix_traffic_bytes: int = 0
    optimizers: tuple[str, ...] = ("adamw", "sgd")
    muon_shardings: tuple[str, ...] = ("none", "zero1", "zero2", "zero3")
    muon_scale: str = "match-rms-adamw"
    adapter_forms: tuple[str, ...] = ()
    frozen_apart: bool = False
    base_types: tuple[str, ...] = ()
    joint_matrices: tuple[str, ...] = ()
    fused_gradient_accumulation: bool = False
    gradient_reduction: GradientReduction = "reduce-scatter"
    gradient_communication_bytes: int = 4
    reduces_each_micro_batch: tuple[str, ...] = ()
    overlap_gradient_reduction: bool = True
    overlap_parameter_gather: bool = True
    zero2_cuts_parameters: bool = False
    gathers: tuple[Gather, ...] = ("per-layer",)
    pipeline_gathers: tuple[Gather, ...] = ("per-step",)
    gathers_layers_ahead: bool = False
    validates_step_afterwards: bool = False
    step_validations: tuple[StepValidation, ...] = ("before",)
    undoes_step_in_place: bool = False
    overlap_p2p: bool = True
    partitioned_p2p: bool = True
    sequence_parallel: bool = True
    tp_regathers_input: bool = True
    ties_shards: bool = False
    orders_experts: bool = False
    deduplicates_exchange: bool = False
    overlap_expert_exchange: bool = False
    weights_expert_activations: bool = False
    capacity_scopes: tuple[str, ...] = ()
    vocab_multiple: int = 128
    schedules: tuple[str, ...] = ("gpipe", "1f1b", "interleaved-1f1b")
    schedule_knobs: tuple[str, ...] = ()
    written_lists: bool = False
    vocabularies: tuple[str, ...] = ()
    shardings: tuple[str, ...] = ("none", "zero1", "zero2", "zero3")
    pipeline_shardings: tuple[str, ...] = ("none", "zero1", "zero2", "zero3")
    recomputes: tuple[str, ...] = ("none", "selective", "full")
    selective_recompute: tuple[str, ...] = ("core_attn",)
    selective_keeps_products: bool = False
    norm_products: tuple[str, ...] = ()
    fp8_recipes: tuple[Fp8Recipe, ...] = ("current",)
    varies_by_layer: tuple[LayerChoice, ...] = ()
    recomputed_layers: RecomputedLayers = "any"
    uneven_shares: bool = False
    offloads_activations: bool = False
    state_offloads: tuple[StateOffload, ...] = ()
    keeps_offloaded_gradients: bool = False
    keeps_chunks: bool = False
    synchronises: bool = False
    encoders: bool = False
    recomputes_exchanges: bool = False
    chooses_sequence_parallelism: bool = False
    rank_orders: tuple[tuple[str, ...], ...] = ()
    tp: bool = True
    pp: bool = True
    cp: bool = True
    contexts: tuple[str, ...] = ("ring",)
    sequence_pieces: tuple[SequencePieces, ...] = ("head-tail",)
    ep: bool = True
    etp: bool = True
    copies_key_value_heads: bool = False
    tp_families: tuple[str, ...] | None = None
    ep_families: tuple[str, ...] | None = None
    models: tuple[StackModel, ...] | None = None
    device_recipes: tuple[DeviceRecipe, ...] = ()
    host_s_per_layer: float = 0.0003
    expert_host_s: float = 0.0
    elementwise_factor: float = 1.0
    fsdp_communication_factor: float = 1.4

    @property
    def id(self) -> str:
        """``name@release``."""
        return f"{self.name}@{self.release}"

    @property
    def free_by_layer(self) -> tuple[LayerChoice, ...]:
        """Return what each layer may have for itself, whatever the others have."""
        bound = "recompute" if self.recomputed_layers == "first" else ""
        return tuple(choice for choice in self.varies_by_layer if choice != bound)

    @property
    def recomputes_any_layers(self) -> bool:
        """Return whether each layer may recompute something else."""
        return "recompute" in self.free_by_layer

    def cuts_parameters(self, sharding: str) -> bool:
        """Return whether parameters are sharded under a ZeRO name."""
        return sharding == "zero3" or (sharding == "zero2" and self.zero2_cuts_parameters)

    def device_recipe(self, device: str, precision: str) -> DeviceRecipe:
        """Return what the recipes do on a family of devices: the first row of it at this precision."""
        return next((row for row in self.device_recipes if row.is_for(device, precision)), NO_RECIPE)

    def recipe_of(self, workload: Workload) -> Fp8Recipe | None:
        """Return the recipe of fp8 of a workload, the stack's usual one unless it names one; None without fp8."""
        return workload.fp8_recipe or self.fp8_recipes[0] if workload.precision == "fp8" else None


CHANGED_BY_PLANS = (
    *("optimizer_traffic_bytes", "scaled_moments", "base"),
    *("optimizer", "matrix_optimizer_bytes", "matrix_traffic_bytes"),
)


def file_fields() -> tuple[Field[Any], ...]:
    """Return the fields that a stack file may have."""
    return tuple(field for field in fields(Stack) if field.name not in CHANGED_BY_PLANS)


def file_rows(stack: Stack) -> dict[str, list[dict[str, object]]]:
    """Return the stack's lists of rows that are not empty, as a file holds them."""
    lists = {
        "models": stack.models or (),
        "device_recipes": stack.device_recipes,
        "state_offloads": stack.state_offloads,
    }
    return {name: [row.said() for row in rows] for name, rows in lists.items() if rows}
