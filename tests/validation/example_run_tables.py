"""Tables of runs for tests: one good row, changed as a test needs it."""

import csv
import random

from meshwright.validation.read_run_table import COLUMNS, Run, read_runs

GOOD = {
    "run_id": "r",
    "source": "s",
    "model": "small",
    "layers": "8",
    "hidden": "1024",
    "ffn_hidden": "4096",
    "ffn": "gelu",
    "heads": "16",
    "kv_heads": "16",
    "vocab": "32000",
    "tied_embeddings": "true",
    "task": "pretrain",
    "seq_len": "1024",
    "global_batch": "32",
    "precision": "bf16",
    "device": "A100-80GB",
    "devices": "8",
    "micro_batch": "1",
    "tp": "2",
    "pp": "2",
    "schedule": "1f1b",
    "dp": "2",
    "sharding": "none",
    "recompute": "none",
    "stack": "megatron-core",
    "outcome": "ok",
    "step_time_s": "1.5",
    "peak_memory_gib": "20",
}
EXPERTS = {"experts": "8", "experts_per_token": "2", "ffn": "swiglu", "ffn_hidden": "2048"}


def row(**changes):
    """The good row with changes."""
    return {**GOOD, **{name: str(value) for name, value in changes.items()}}


def write(path, rows, columns=COLUMNS):
    """A table with these rows; returns its path."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="", extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return path


def read(path, *rows):
    """What is read of a table with these rows."""
    return list(read_runs(write(path, rows)))


def run_of(path, **changes):
    """The run that the changed good row is."""
    (run,) = read(path, row(**changes))
    assert isinstance(run, Run), run
    return run


def random_rows(count, seed):
    """Rows with random plans, many of them illegal, of a few dense and routed models."""
    pick = random.Random(seed).choice
    for number in range(count):
        yield row(
            run_id=f"r{number}",
            model=pick("ab"),
            **(EXPERTS if pick((True, False)) else {}),
            ep=pick((1, 2, 4)),
            etp=pick((1, 1, 2)),
            layers=pick((8, 12)),
            kv_heads=pick((4, 16)),
            tp=pick((1, 2, 4)),
            pp=pick((1, 2, 4)),
            cp=pick((1, 1, 2)),
            dp="",
            micro_batch=pick((1, 2, 3)),
            virtual_stages=pick((1, 1, 2)),
            schedule=pick(("gpipe", "1f1b", "interleaved-1f1b")),
            sharding=pick(("none", "zero1", "zero2", "fsdp", "hsdp")),
            shard_group=pick(("", 2)),
            recompute=pick(("none", "selective", "full", "core_attn layernorm", "moe_act")),
            sequence_parallel=pick(("", "true", "false")),
            global_batch=pick((16, 32)),
            stack=pick(("megatron-core", "torchtitan", "another one")),
            attention=pick(("", "flash2", "fused-softmax", "eager")),
            step_time_s=round(0.1 + pick(range(100)) / 100, 2),
        )
