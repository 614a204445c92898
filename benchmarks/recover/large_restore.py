"""Read the part of one rank of a 70B model from a checkpoint of another plan, and count memory and bytes.

    python benchmarks/recover/large_restore.py FOLDER

The checkpoint is written here without values: sparse files whose headers, sizes and digests are those of a run. Prints
JSON: bytes of the rank's shard, the peak of this process's memory, bytes and chunks read, and chunks read twice.
"""

import json
import resource
import sys
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import torch

from meshwright.model.load import load_model
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.resolve import resolve
from meshwright.program.lowering.lower_plan import lower
from meshwright.program.program import Program
from meshwright.program.rank_units.rank_units import RankUnits
from meshwright.runtime.checkpoint import chunked_file
from meshwright.runtime.checkpoint.compatibility import model_facts, plan_facts, stored_signature
from meshwright.runtime.checkpoint.manifest import CHUNK_BYTES, Manifest, StoredFile
from meshwright.runtime.checkpoint.read_shards import found_stretches, read_stretches
from meshwright.runtime.checkpoint.shard_files import rank_file
from meshwright.runtime.checkpoint.shard_output import header_of, in_file_order
from meshwright.runtime.checkpoint.stored_stretch import Stretch
from meshwright.runtime.state.shard_owner import first_owner

MODEL, STATES = "llama-3.1-70b", ("first_moment", "parameter", "second_moment")
BEFORE = {"layout": {"tp": 8, "pp": 4, "dp_shard": 4}, "sharding": "zero1"}
AFTER = {"layout": {"tp": 4, "pp": 2, "dp_shard": 16}, "sharding": "zero3"}
RANKS, RANK = 128, 5


def program_of(keys: dict) -> Program:
    """Lower a plan of 128 devices."""
    data = {
        "plan": 1,
        "model": MODEL,
        "cluster": f"h100-sxm-80gb x {RANKS}",
        "stack": "meshwright",
        "workload": {"seq_len": 4096, "global_batch": 128},
        "recompute": "none",
        "pipeline": {},
        **keys,
    }
    found = resolve(ShortPlan.model_validate(data))
    of = found.setting
    return lower(found.long, of.model, of.cluster, of.workload, of.stack)


def stretches_of(program: Program, rank: int, device: str) -> Iterator[Stretch]:
    """Yield the states that a rank owns first."""
    units = RankUnits(program, rank)
    for unit in units.distinct():
        tensors = {tensor.name: tensor for tensor in unit.layout.tensors}
        part = program.parts[unit.part]
        place = units.place_in(unit.layout.mesh.shard, unit.part) if unit.layout.parts > 1 else 0
        for name, of, _ in unit.layout.spans(place):
            if first_owner(program, rank, unit.layout, tensors[name], part) == rank:
                for state in STATES:
                    memory = torch.zeros(of.stop - of.start, device=device)
                    yield Stretch(state, tensors[name], of.start, rank, (memory,))


def write_sparse(path: Path, stretches: list[Stretch]) -> StoredFile:
    """Write a file with a header and no values."""
    first = header_of(in_file_order(stretches))
    at = sum(4 * stretch.length for stretch in stretches)
    with path.open("wb") as file:
        file.write(first)
        file.truncate(len(first) + at)
    whole, rest = divmod(at, CHUNK_BYTES)
    digests = [sha256(first).hexdigest(), *[sha256(bytes(CHUNK_BYTES)).hexdigest()] * whole]
    digests += [sha256(bytes(rest)).hexdigest()] if rest else []
    return StoredFile(len(first) + at, header_bytes=len(first), chunks=tuple(digests))


def main() -> None:
    """Write the checkpoint, read a rank's part of it, print the figures."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    before, after = program_of(BEFORE), program_of(AFTER)
    files = {}
    for rank in range(RANKS):
        of_rank = list(stretches_of(before, rank, "meta"))
        if of_rank:
            files[rank_file(rank)] = write_sparse(folder / rank_file(rank), of_rank)
    manifest = Manifest(
        signature=stored_signature(before),
        ranks=RANKS,
        precision="bf16",
        step=1,
        plan=plan_facts(before),
        model=model_facts(load_model(MODEL)),
        facts={},
        files=files,
    )
    read: Counter = Counter()
    loaded = chunked_file.ChunkedFile._loaded

    def counted(file: chunked_file.ChunkedFile, number: int) -> bytearray:
        content = loaded(file, number)
        if number:  # headers are read to find what there is
            read[file.name, number] += len(content)
        return content

    chunked_file.ChunkedFile._loaded = counted  # type: ignore[method-assign]
    began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    wanted = list(stretches_of(after, RANK, "cpu"))
    shard = sum(4 * stretch.length for stretch in wanted)
    reading = found_stretches(folder, manifest, wanted, after)
    chunks = read_stretches(folder, manifest, reading)
    of_data = {chunk for chunk in chunks if chunk[1]}
    twice = sum(read.values()) - sum(manifest_bytes(manifest, chunk) for chunk in of_data)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(
        json.dumps(
            {
                "shard_bytes": shard,
                "peak_bytes": peak,
                "peak_without_the_interpreter_bytes": peak - began,
                "bytes_read": sum(read.values()),
                "chunks_read": len(of_data),
                "bytes_read_twice": twice,
                "files_read": len({name for name, _ in of_data}),
                "checkpoint_bytes": sum(stored.size_bytes for stored in files.values()),
            }
        )
    )


def manifest_bytes(manifest: Manifest, chunk: tuple[str, int]) -> int:
    """Return the bytes of a chunk."""
    start, stop = manifest.files[chunk[0]].bounds(chunk[1])
    return stop - start


if __name__ == "__main__":
    main()
