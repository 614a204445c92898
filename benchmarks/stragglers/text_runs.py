"""Train a small model on the example text on real processes, one for each replica."""

import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loss_curves import TEXT, Lab

from meshwright import api

SEEDS = (0, 1, 2)
SEQ_LEN = 64


@dataclass(frozen=True)
class TextRun:
    """A plan of so many replicas with an entry of ``synchronise``, and its steps."""

    name: str
    replicas: int
    entry: Mapping[str, object] | None
    steps: int
    lr: float
    optimizer: object = "adamw"
    micro_batches: int = 1
    sizes: Mapping[str, int] | None = None

    def train(self, seed: int) -> dict[str, Any]:
        """Return losses, seconds of each step, and sequences that were not seen."""
        with tempfile.TemporaryDirectory(prefix="meshwright-") as folder:
            lab = Lab(Path(folder), self.steps)
            lab.prepare()
            self._resize(lab.folder / "config.json")
            path = lab.folder / "plan.yaml"
            path.write_text(json.dumps(self._plan(lab.folder)), encoding="utf-8")
            options = {
                "steps": self.steps,
                "seed": seed,
                "lr": self.lr,
                "warmup_steps": 5,
                "output": lab.folder / "run",
                "data": (str(TEXT),),
                "cache": lab.folder / "tokens",
            }
            done = api.run(path, options=options, precision="fp32", resume="never", cpu=True)
            assert done is not None
            found = done.outcome
            print(f"{self.name}, seed {seed}: {found.losses[-1]:.4f}", file=sys.stderr, flush=True)
            return {
                "losses": list(found.losses),
                "seconds": list(found.step_times_s),
                "not_seen": found.sequences_not_seen,
            }

    def _resize(self, config: Path) -> None:
        data = json.loads(config.read_text(encoding="utf-8"))
        config.write_text(json.dumps(data | dict(self.sizes or {})), encoding="utf-8")

    def _plan(self, folder: Path) -> dict[str, object]:
        batch = self.replicas * self.micro_batches
        return {
            "plan": 1,
            "model": str(folder / "config.json"),
            "cluster": f"h100-sxm-80gb x {self.replicas}",
            "workload": {"seq_len": SEQ_LEN, "global_batch": batch, "optimizer": self.optimizer},
            "stack": "meshwright",
            "layout": {"dp_replicate": self.replicas},
            "pipeline": {"micro_batch": 1},
            "synchronise": [] if self.entry is None else [dict(self.entry)],
        }
