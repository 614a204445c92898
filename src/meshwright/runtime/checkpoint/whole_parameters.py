"""Read the parameters of a checkpoint as whole tensors."""

from pathlib import Path

import torch

from meshwright.runtime.checkpoint.formats.meshwright_reader import read_meshwright
from meshwright.runtime.checkpoint.shard_files import PARAMETER


def whole_parameters(path: Path) -> dict[str, torch.Tensor]:
    """Return every stored parameter by name, in its stored dtype. Raises InputError for damaged files.

    Where islands of replicas differ, an anchor stands for the model (``exchange_states.py``).
    """
    states = read_meshwright(path)
    found = {name: of.read() for (state, name), of in states.tensors.items() if state == PARAMETER}
    states.finish()
    return found
