"""The section on one rank that reads its part of a checkpoint of a 70B model."""

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kept_parts import kept

MEMORY_LIMIT = 1.2


def large_rank() -> tuple[str, bool]:
    """Return the section, and whether the rank stays within its memory and reads nothing twice."""
    large = kept("large", large_restore)
    shard, peak, read = (large[key] / 1e9 for key in ("shard_bytes", "peak_bytes", "bytes_read"))
    text = f"""Llama-3.1-70B saved by 128 ranks under tp 8, pp 4, dp_shard 4, zero1, as sparse files of
{large["checkpoint_bytes"] / 1e9:.0f} GB. Rank 5 of 128 reads its part under tp 4, pp 2, dp_shard 16, zero3, in a
process of its own (`benchmarks/recover/large_restore.py`), with digests.

| | |
|---|--:|
| shard of the rank | {shard:.2f} GB |
| peak memory of the process | {peak:.2f} GB, {peak / shard:.2f} times the shard (limit {MEMORY_LIMIT}) |
| read from {large["files_read"]} files | {read:.2f} GB in {large["chunks_read"]} chunks, {read / shard:.2f} times |
| read twice | {large["bytes_read_twice"]} bytes |"""
    return text, peak <= MEMORY_LIMIT * shard and not large["bytes_read_twice"]


def large_restore() -> dict[str, Any]:
    """Read a rank's part of a large model in a process of its own."""
    with TemporaryDirectory() as folder:
        command = [sys.executable, str(Path(__file__).parent / "large_restore.py"), folder]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)
