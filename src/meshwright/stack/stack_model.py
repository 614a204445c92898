"""A model that a stack has by name, and the test that an architecture is that model."""

from typing import Annotated

from pydantic import Field

from meshwright.stack.file_row import FileRow

Count = Annotated[int, Field(ge=0)]


class StackModel(FileRow):
    """A row of a stack's ``models``: a configuration of the framework, and the architecture that it trains.

    ``config`` (and ``module``) are the framework's own names. ``model`` names a model of the catalogue whose
    architecture it is; without it ``families`` and the facts of its shape tell it, of which those that are left out may
    be anything. ``precisions``: those that it is trained in, any if there are none. ``context_parallel``: cp cuts its
    attention. ``max_positions``: the longest sequence that it trains, any if left out.
    """

    config: str
    module: str = ""
    model: str = ""
    families: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ()
    context_parallel: bool = True
    max_positions: Count | None = None
    layers: Count | None = None
    dense_layers: Count | None = None
    hidden: Count | None = None
    vocab: Count | None = None
    tied_embeddings: bool | None = None
    heads: Count | None = None
    kv_heads: Count | None = None
    head_dim: Count | None = None
    intermediate: Count | None = None
    q_rank: Count | None = None
    kv_rank: Count | None = None
    experts: Count | None = None
    experts_per_token: Count | None = None
    expert_intermediate: Count | None = None
    shared_intermediate: Count | None = None


SHAPE = tuple(StackModel.model_fields)[list(StackModel.model_fields).index("layers") :]
"""The keys that say something of the architecture's shape."""
