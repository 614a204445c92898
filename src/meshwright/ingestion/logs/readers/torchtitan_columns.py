"""torchtitan's mesh, model and applied techniques as columns of a table of runs.

The mesh leaves out axes of one rank before 0.2.1. FSDP shards over dp_shard·cp. A local batch is one micro-batch; with
a pipeline it has as many as its schedule. A run that began to train without a line about activation checkpointing has
none. The width of Llama's feed-forward part is a rule: 8/3·dim, times a multiplier, rounded up to a multiple.
Source: pytorch/torchtitan at v0.1.0 and v0.2.2, ``distributed/parallel_dims.py``, ``models/llama3/model``.
"""

from collections.abc import Iterator

from meshwright.frameworks.importing.imported_file import Fact
from meshwright.frameworks.torchtitan.importing.pipeline_stages import SCHEDULES
from meshwright.ingestion.device_names import device_of
from meshwright.ingestion.logs.events import Cells, Settings, first_text, number, whole_number

AXES = ("pp", "dp_replicate", "dp_shard", "cp", "tp", "ep", "etp")
OLD_AXES = {"dp": "dp_shard", "dp_shard_mod_ep": "dp_shard", "dp_shard_in_ep": "dp_shard"}
CHECKPOINTING = {"selective": "selective", "SelectiveAC": "selective", "full": "full", "FullAC": "full"}
SHAPE = {
    "layers": "n_layers",
    "hidden": "dim",
    "heads": "n_heads",
    "vocab": "vocab_size",
    "head_dim": "head_dim",
}

Found = Iterator[tuple[str, Fact]]


def torchtitan_columns(settings: Settings) -> Cells:
    """Return every column that the settings fill; empty without settings."""
    cells: Cells = {}
    if settings:
        cells["stack"] = Fact("torchtitan", "torchtitan's lines")
        for part in (_names, _shape, _mesh, _sharding, _batch, _pipeline, _recompute):
            cells |= dict(part(settings))
    return cells


def _names(settings: Settings) -> Found:
    for column in ("model", "release", "precision"):
        if value := first_text(settings, column):
            yield column, Fact(value, f"{column} {value}")
    if device := device_of(settings.get("device", ""), number(settings.get("capacity", "")) or 0.0):
        yield "device", Fact(device, f"{settings['device']} with {settings['capacity']}GiB memory")


def _shape(settings: Settings) -> Found:
    """Yield the shape from the arguments of the model's class, for Llama-like models."""
    for column, name in SHAPE.items():
        if value := whole_number(settings, f"model.{name}"):
            yield column, Fact(str(value), f"{name}={value}")
    heads = whole_number(settings, "model.n_kv_heads", "model.n_heads")
    if heads and "model.n_kv_heads" in settings:
        yield "kv_heads", Fact(str(heads), f"n_kv_heads={settings['model.n_kv_heads']}")
    dim, multiple = whole_number(settings, "model.dim"), whole_number(settings, "model.multiple_of")
    if dim and multiple:
        width = int(int(8 * dim / 3) * (number(settings.get("model.ffn_dim_multiplier", "")) or 1.0))
        words = f"8/3·dim and a multiple of {multiple}"
        yield "ffn_hidden", Fact(str(-(-width // multiple) * multiple), words)
        yield "ffn", Fact("swiglu", "Llama's feed-forward part")
        yield "tied_embeddings", Fact("false", "Llama's output layer")


def _degrees(settings: Settings) -> dict[str, int]:
    """Return the sizes of the mesh's axes; empty if the log has no mesh."""
    old = "mesh" in settings
    if not old and "dp_shard" not in settings:
        return {}
    degrees = dict.fromkeys(AXES[:5], 1)
    for name in (*AXES, *OLD_AXES):
        if size := whole_number(settings, name):
            axis = OLD_AXES.get(name, name)
            degrees[axis] = degrees.get(axis, 1) * size if name in OLD_AXES else size
    return degrees


def _mesh(settings: Settings) -> Found:
    degrees = _degrees(settings)
    if not degrees:
        return
    dp = degrees["dp_replicate"] * degrees["dp_shard"]
    sizes = {name: degrees[name] for name in ("pp", "cp", "tp", "ep", "etp") if name in degrees} | {"dp": dp}
    for column, size in sizes.items():
        yield column, Fact(str(size), f"{column}={size} of the mesh")
    devices = dp * sizes["pp"] * sizes["cp"] * sizes["tp"]
    yield "devices", Fact(str(devices), "the product of the mesh")


def _sharding(settings: Settings) -> Found:
    degrees = _degrees(settings)
    if not degrees:
        return
    if degrees["dp_shard"] * degrees["cp"] == 1:
        yield "sharding", Fact("none", f"dp_shard=1 ({settings.get('data parallel', 'one rank')})")
    elif degrees["dp_replicate"] == 1:
        yield "sharding", Fact("fsdp", f"dp_shard={degrees['dp_shard']}")
    else:
        yield "sharding", Fact("hsdp", f"dp_replicate={degrees['dp_replicate']}")
        yield "shard_group", Fact(str(degrees["dp_shard"]), f"dp_shard={degrees['dp_shard']}")


def _batch(settings: Settings) -> Found:
    """Yield sequences of a step and of a micro-batch, from sequences or from tokens."""
    alone = _degrees(settings).get("pp", 1) == 1
    seq_len, micro = whole_number(settings, "seq_len"), whole_number(settings, "microbatches") or int(alone)
    local, total = whole_number(settings, "local batch"), whole_number(settings, "global batch")
    if seq_len:
        yield "seq_len", Fact(str(seq_len), f"sequence length {seq_len}")
        tokens, all_tokens = whole_number(settings, "local tokens"), whole_number(settings, "global tokens")
        local = tokens // seq_len if tokens and tokens % seq_len == 0 else local
        total = all_tokens // seq_len if all_tokens and all_tokens % seq_len == 0 else total
    if total:
        yield "global_batch", Fact(str(total), f"global batch of {total} sequences")
    if local and micro and local % micro == 0:
        yield "micro_batch", Fact(str(local // micro), f"local batch {local} in {micro} micro-batches")


def _pipeline(settings: Settings) -> Found:
    pp, stages = _degrees(settings).get("pp"), whole_number(settings, "stages")
    name = SCHEDULES.get(settings.get("schedule", "").lower())
    if pp == 1:
        yield "schedule", Fact("none", "pp=1")
    elif name:
        yield "schedule", Fact(name, f"pipeline schedule {settings['schedule']}")
    if pp and stages and stages % pp == 0:
        yield "virtual_stages", Fact(str(stages // pp), f"{stages} stages on {pp} ranks")


def _recompute(settings: Settings) -> Found:
    applied = settings.get("checkpointing")
    if applied in CHECKPOINTING:
        yield "recompute", Fact(CHECKPOINTING[applied], f"Applied {applied} activation checkpointing")
    elif applied is None and "model" in settings and "seq_len" in settings:
        yield "recompute", Fact("none", "no activation checkpointing was applied")
    elif applied is not None:
        yield "notes", Fact(f"activation checkpointing by {applied}", f"Applied {applied}")
