"""Checkpoints of a run: its shards, moments and step, written atomically, read back to the bit or refused by name.

``folder`` knows which checkpoints there are and makes a name appear only when all is on disk, ``manifest`` says what is
in one, ``plan_facts`` under which plan and model, ``shards`` what a rank writes and reads; ``saving`` and ``restoring``
do it on all ranks together, ``exporting`` writes weights alone for other software.
"""

from meshwright.runtime.checkpoint.exporting import export_weights
from meshwright.runtime.checkpoint.folder import latest_checkpoint, prune_checkpoints
from meshwright.runtime.checkpoint.manifest import read_facts
from meshwright.runtime.checkpoint.restoring import restore_checkpoint
from meshwright.runtime.checkpoint.saving import save_checkpoint

__all__ = [
    "export_weights",
    "latest_checkpoint",
    "prune_checkpoints",
    "read_facts",
    "restore_checkpoint",
    "save_checkpoint",
]
