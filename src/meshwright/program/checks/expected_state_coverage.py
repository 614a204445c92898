"""The expected coverage of the state table, parameter by parameter: elements of the model, copies, padding.

For every row   elements on a rank × ranks of its layout = elements of the model + copies + padding.
Copies are of parameters that some axis of the layout does not cut (norms, routers, biases of row-parallel layers);
padding is the vocabulary's, that of dims that do not divide, and that of flat buffers which the shard axes do not
divide. With a tied table and both ends on one rank the head's row leaves the table out: the embedding's has it. Of a
vocabulary that is spread over pipeline ranks every share's rows count its own part of the tables.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

from meshwright.model.graph import Block, ModelGraph
from meshwright.model.operators.operator_types import Parameter
from meshwright.program.model_states.hidden_matrices import matrix_names
from meshwright.program.model_states.state_elements import (
    DENSE_SHARD_AXES,
    EXPERT_SHARD_AXES,
    PARAMETER_CLASSES,
    ParameterClass,
    StateKind,
    embedding_names,
    state_kinds,
)
from meshwright.program.model_states.uneven_shards import largest_shard
from meshwright.program.pipeline_vocabulary import ends_together, rows_of_share
from meshwright.program.program import Program, Stage
from meshwright.program.program_parts import Part

DENSE_AXES, EXPERT_AXES = ("tp",), ("ep", "etp")


@dataclass(frozen=True, slots=True)
class Unit:
    """A part of the parameters of one block of a stage: what one row of each kind of state is for.

    ``index`` is that of the part of the Program. ``repeat`` blocks of the stage are alike.
    """

    stage: int
    name: str
    part: ParameterClass
    layers: tuple[int, ...]
    parameters: tuple[Parameter, ...]
    matrices: frozenset[str] = frozenset()
    index: int = 0
    repeat: int = 1

    def with_state(self, kind: StateKind) -> Iterator["Unit"]:
        """Yield the unit's parameters with a state of this kind; frozen ones have no gradient or optimizer.

        The optimizer's states of ``matrices`` are in a row of the stage.
        """
        apart = self.matrices if kind == "optimizer" else frozenset[str]()
        held = tuple(p for p in self.parameters if (p.trained or kind == "parameter") and p.name not in apart)
        if held:
            yield replace(self, parameters=held)

    @property
    def expert(self) -> bool:
        """True if it lies on the mesh of the experts."""
        return self.part.expert

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes that cut tensors."""
        return EXPERT_AXES if self.expert else DENSE_AXES

    @property
    def shard_axes(self) -> tuple[str, ...]:
        """The axes that may cut the flat buffer of what is left."""
        return EXPERT_SHARD_AXES if self.expert else DENSE_SHARD_AXES


@dataclass(frozen=True, slots=True)
class Coverage:
    """The required content of one row: ``local`` for one layer on one rank, the others for all its layers."""

    unit: Unit
    kind: StateKind
    local: int
    elements: int
    copies: int
    padding: int


def units(program: Program, model: ModelGraph) -> Iterator[Unit]:
    """Every unit of every stage, in the order of the state table."""
    of_muon = program.stack.optimizer.kind.of_matrices
    for stage in program.sections:
        for block, (layers, repeat) in _layers_of(stage, model, program).items():
            for of in PARAMETER_CLASSES:
                parameters = _parameters(model, model.blocks[block], of, ends_together(program))
                if stage in program.shares:
                    parameters = tuple(_part(parameter, stage.rank, program) for parameter in parameters)
                name = model.blocks[block].name + of.suffix
                if parameters:
                    apart = matrix_names([model.blocks[block]]) if of_muon else frozenset[str]()
                    yield Unit(
                        stage.index,
                        name,
                        of,
                        layers,
                        parameters,
                        apart,
                        program.parts.of_blocks[block],
                        repeat,
                    )


def cover(program: Program, unit: Unit, kind: StateKind, *, sharded: bool) -> Coverage:
    """Return the row of one unit; ``sharded``: its buffer is cut over the data-parallel shard axes."""
    part = program.parts[unit.index]
    grid = part.expert_grid if unit.expert else part.grid
    tensors, shards = grid.size(unit.axes), grid.size(unit.shard_axes) if sharded else 1
    cut = [(p, _cuts(p, part, expert=unit.expert)) for p in unit.parameters]
    whole = sum(_local(p, cuts, program, part) for p, cuts in cut)
    local = (
        int(largest_shard(whole, part.shape)) if sharded and part.shape.state_share else -(-whole // shards)
    )
    elements = sum(p.elements for p in unit.parameters)
    copies = sum((tensors // prod(cuts.values()) - 1) * p.elements for p, cuts in cut)
    held = whole if sharded and part.shape.state_share else local * shards
    padding = held * tensors - elements - copies
    repeat = unit.repeat
    return Coverage(unit, kind, local, repeat * elements, repeat * copies, repeat * padding)


def coverage(program: Program, model: ModelGraph) -> tuple[Coverage, ...]:
    """One entry for every row that the state table must have, sharded as the row is that it has."""
    rows = {(row.stage, row.name, row.kind, row.part): row.layout for row in program.states}

    def sharded(unit: Unit, kind: StateKind) -> bool:
        return len(rows.get((unit.stage, unit.name, kind, unit.index), ())) > len(unit.axes)

    return tuple(
        cover(program, part, kind, sharded=sharded(unit, kind))
        for unit in units(program, model)
        for kind in state_kinds(program.stack)
        for part in unit.with_state(kind)
    )


def padded_shape(parameter: Parameter, program: Program, part: Part) -> tuple[int, ...]:
    """Return the shape with the vocabulary rounded up; for a share, with its part of that."""
    return tuple(
        _padded_rows(parameter, program, part) if dim == parameter.vocab_dim else length
        for dim, length in enumerate(parameter.shape)
    )


def _padded_rows(table: Parameter, program: Program, part: Part) -> int:
    """Rows of a table, or of a share of it, with what is added at the end of the whole table."""
    (rows,) = {
        p.shape[0]
        for block in program.blocks
        for op in block.operators
        for p in op.parameters
        if p.name == table.name
    }
    return int(part.shape.padded_vocab(rows) // part.shape.vocabulary)


def _part(parameter: Parameter, rank: int, program: Program) -> Parameter:
    """Return a share's part of a table: its rows, without padding."""
    rows, *rest = parameter.shape
    padded = int(program.parts.only.shape.padded_vocab(rows))
    return replace(parameter, shape=(rows_of_share(rows, padded, rank, program.pipeline_ranks), *rest))


def _cuts(parameter: Parameter, part: Part, *, expert: bool) -> dict[int, int]:
    """Return how many parts the axes of its mesh cut each dim of a parameter into, its buffer's shards aside."""
    sizes = (part.expert_grid if expert else part.grid).sizes
    cuts: dict[int, int] = {}
    for axis, dim in (("ep", parameter.ep_dim), ("etp" if expert else "tp", parameter.tp_dim)):
        if dim is not None:
            cuts[dim] = cuts.get(dim, 1) * sizes[axis]
    return cuts


def _local(parameter: Parameter, cuts: Mapping[int, int], program: Program, part: Part) -> int:
    """Return the elements of a parameter on the rank that has most."""
    return prod(-(-n // cuts.get(dim, 1)) for dim, n in enumerate(padded_shape(parameter, program, part)))


def _layers_of(stage: Stage, model: ModelGraph, program: Program) -> dict[int, tuple[tuple[int, ...], int]]:
    """Return by block the layers of this stage that have its name and part, and the number of blocks.

    Embedding, encoder and head are no layers.
    """

    def key(block: int) -> tuple[str, int]:
        return model.blocks[block].name, program.parts.of_blocks[block]

    named = {key(block): block for block in reversed(stage.blocks)}
    found: dict[int, tuple[int, ...]] = {named[key(block)]: () for block in stage.blocks}
    layers = (block for block in stage.blocks if model.blocks[block].kind == "layer")
    for block, number in zip(layers, stage.layers, strict=False):
        like = named[key(block)]
        found[like] = (*found[like], number)
    repeats = Counter(named[key(block)] for block in stage.blocks)
    return {block: (layers, repeats[block]) for block, layers in found.items()}


def _parameters(
    model: ModelGraph, block: Block, part: ParameterClass, together: bool
) -> tuple[Parameter, ...]:
    shared = embedding_names(model.blocks) if together and block.kind != "embed" else frozenset[str]()
    return tuple(
        parameter
        for op in block.operators
        for parameter in op.parameters
        if part.has(parameter, op) and parameter.name not in shared
    )
