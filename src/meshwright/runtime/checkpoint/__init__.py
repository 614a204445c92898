"""Checkpoints of a run: shards, moments and step, written atomically, restored bit for bit.

``run_folder`` lists the checkpoints and gives one its name only when all of it is on disk, ``manifest`` describes
one checkpoint, ``compatibility`` compares its plan and model with a run's, ``shard_files`` reads and writes a rank's
part; ``save`` and ``restore`` work on all ranks together, ``hugging_face_export`` writes weights alone for other
software. A checkpoint of another plan, or a damaged one, is refused with the reason.
"""

from meshwright.runtime.checkpoint.hugging_face_export import export_weights
from meshwright.runtime.checkpoint.restore import restore_checkpoint
from meshwright.runtime.checkpoint.run_folder import latest_checkpoint, prune_checkpoints
from meshwright.runtime.checkpoint.save import save_checkpoint

__all__ = [
    "export_weights",
    "latest_checkpoint",
    "prune_checkpoints",
    "restore_checkpoint",
    "save_checkpoint",
]
