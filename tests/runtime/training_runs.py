"""Tiny plans in a folder, trained by the verb itself on forked ranks."""

import json
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from tiny_models import tiny_config

from meshwright import api

SEQ_LEN, SEQUENCES = 24, 8


@dataclass(frozen=True)
class SmallRun:
    """A plan file; ``train`` runs it in fp64 unless it says otherwise."""

    path: Path

    def train(self, output, steps=4, precision="fp64", **wishes):
        starting = {name: wishes.pop(name) for name in ("initial", "export", "resume") if name in wishes}
        options = {"steps": steps, "output": self.path.parent / output, **wishes}
        return api.run(self.path, options=options, precision=precision, **starting)

    def metrics(self, output):
        text = (self.path.parent / output / "metrics.jsonl").read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]


def replicas(layout=MappingProxyType({}), **other_keys):
    """Ranks of a layout that share the sequences of a step."""
    return layout.get("dp_replicate", 1) * layout.get("dp_shard", 1)


def small_run(folder, name="plan", ranks=1, family="llama", capacity=None, **keys):
    """A plan of a tiny model on so many ranks, its experts of a ``capacity`` or none.

    ``keys`` are further ones of the short form. Unless they have a pipeline, a replica takes two micro-batches a step:
    gradients add up, and a step has few messages.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(tiny_config(family)), encoding="utf-8")
    plan = {
        "plan": 1,
        "model": "config.json",
        "cluster": f"h100-sxm-80gb x {ranks}",
        "workload": {"seq_len": SEQ_LEN, "global_batch": SEQUENCES}
        | ({"capacity": capacity} if capacity else {}),
        "stack": "meshwright",
        "layout": {},
        "pipeline": {"micro_batch": max(1, SEQUENCES // replicas(**keys) // 2)},
        **keys,
    }
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps(plan), encoding="utf-8")
    return SmallRun(path)
