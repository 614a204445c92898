"""Spread a model's vocabulary over the pipeline ranks.

The embedding's table and the projection with its loss become blocks of their own that are in no stage; every
pipeline rank has a part of them. The rest of the first block stays in the first stage (learned positions, a norm),
and the norm before the projection stays in the last one. A table that both ends share is one table on every rank.
"""

from collections.abc import Iterator
from dataclasses import replace

from meshwright.model.graph import Block, ModelGraph
from meshwright.model.operators.operator_types import Embedding, LeaveTensor, Norm, Operator, Parameter


def with_vocabulary_parallel(model: ModelGraph) -> ModelGraph:
    """Return the same operators and parameters, with the vocabulary's in the blocks ``ModelGraph.vocabulary``."""
    first, last = model.chain[0][0], model.chain[-1][0]
    embed, head = model.blocks[first], model.blocks[last]
    stays = tuple(op for op in head.operators if isinstance(op, Norm))
    shares = (
        Block(
            "embed.vocabulary",
            "embed",
            tuple(replace(op, parameters=_tables(op)) for op in embed.operators if isinstance(op, Embedding)),
        ),
        Block("head.vocabulary", "head", tuple(op for op in head.operators if op not in stays)),
    )
    ends = {
        first: replace(embed, operators=tuple(_without_rows(embed))),
        last: replace(head, operators=stays),
    }
    blocks = tuple(ends.get(index, block) for index, block in enumerate(model.blocks))
    count = len(blocks)
    return replace(model, blocks=blocks + shares, vocabulary=(count, count + 1))


def _without_rows(embed: Block) -> Iterator[Operator]:
    """Yield the operators that stay in the first stage; learned positions are added after the lookups are complete."""
    for op in embed.operators:
        if not isinstance(op, Embedding):
            yield op
        if isinstance(op, LeaveTensor):
            for rows in (other for other in embed.operators if isinstance(other, Embedding)):
                others = tuple(p for p in rows.parameters if p not in _tables(rows))
                if others:
                    yield replace(rows, name="positions", place="sequence", parameters=others)


def _tables(embedding: Embedding) -> tuple[Parameter, ...]:
    return tuple(p for p in embedding.parameters if p.vocab_dim is not None)
