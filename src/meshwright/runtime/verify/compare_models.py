"""Compare the models that two plans have trained on equal data, without clipping, in fp64.

The first run writes its model to a file, and a rank of the second compares: the parent touches no tensor, so that it
can fork again.
"""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist

from meshwright.runtime.executor.rank import Job, rank_of
from meshwright.runtime.launch.forked_ranks import ProgressCallback, run_locally
from meshwright.runtime.launch.launcher_environment import Place
from meshwright.runtime.verify.run_case import LIMIT_S, WAIT_S, gathered, model_of, recorded
from meshwright.runtime.verify.tensor_errors import Error, tensor_error
from meshwright.runtime.verify.verify_case import VerifyCase

SAME = 1e-11
"""Largest relative difference of equal models."""
MODEL = "model.pt"


def models_apart(first: VerifyCase, second: VerifyCase, report: ProgressCallback) -> Error:
    """Return the largest difference of parameters after the last step, relative to the first. Raises RunError."""
    with TemporaryDirectory(prefix="meshwright-") as folder:
        path = Path(folder) / MODEL
        _run(first, path, report)
        found = _run(second, path, report)
    assert isinstance(found, Error)
    return found


def _run(trial: VerifyCase, path: Path, report: ProgressCallback) -> object:
    """Train; write the model, or compare it with the one that is written."""
    trial = replace(trial, options=replace(trial.options, clip=None))

    def work(place: Place, store: dist.Store, report: ProgressCallback) -> Error | None:
        job = Job(
            trial.program, trial.model, "fp64", trial.options, WAIT_S, accelerated=False, rates=trial.rates
        )
        with rank_of(job, place, store, trial.tensors()) as rank:
            everyone = gathered(recorded(trial, rank, report), place)
            if place.rank:
                return None
            found = dict(model_of(trial.program, everyone))
            if not found:
                return Error(torch.inf, "parameters that are not finite")
            if not path.exists():
                torch.save(found, path)
                return None
            return tensor_error(found, torch.load(path))

    return run_locally(work, trial.program.parts.ranks, LIMIT_S, report)
