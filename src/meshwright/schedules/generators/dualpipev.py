"""DualPipeV: DualPipe cut in half, two chunks a rank in a V (Sea AI Lab; github.com/deepseek-ai/DualPipe).

Rank r of P has stage r, its first chunk, and stage 2P−1−r. With F0 and F1 for forward passes of its chunks, B for a
whole backward pass, I for the gradient of the input alone and W for the oldest one of the weights that is left, it runs

    2(P−1−r) × F0, (r+1) × F0 F1, (P−1−r) × I1 W F1, (M−2P+r+1) × F0 B1 F1 B0, (P−1−r) × B1 F1 B0,
    r+1 × B, r+1 × I (chunks 1 and 0 in turn), (P−1−r) × W I0, (r+1) × W.

2P + 1 chunks are in flight at most. The published bubble is (P−1)·(F&B + B − 3W) in times of a chunk, where F&B is a
pair F0 B1 or F1 B0 that runs at once and gives its results at its end. Without overlap such a pair takes F + B, and
the published bubble holds with that, exactly for F = I ≥ W. Lists say which of the two comes first, and the result of F
leaves when F has ended, the gradient when I has: the lists' own bubble is then (P−1)·(F + B − 2W), (P−1)·I less. B is I
and W of one micro-batch in turn here, so that all passes are F, I or W.
"""

from meshwright.schedules.action import Action, Kind
from meshwright.schedules.pipeline import Pipeline

ChunkPass = tuple[Kind, int, int]
"""Kind, chunk of the rank, and number of the micro-batch."""


def dualpipev(pipeline: Pipeline) -> list[list[Action]]:
    """One list per rank; V is 2."""
    last = pipeline.stages - 1
    return [
        [
            Action(kind, last - rank if chunk else rank, m)
            for kind, chunk, m in chunk_passes(rank, pipeline.ranks, pipeline.micro_batches)
        ]
        for rank in range(pipeline.ranks)
    ]


def chunk_passes(rank: int, ranks: int, micro_batches: int) -> list[ChunkPass]:
    """Return a rank's passes. The ends take 2P micro-batches; with fewer, the surplus passes are left out."""
    done, weights = {("F", 0): 0, ("F", 1): 0, ("I", 0): 0, ("I", 1): 0}, list[ChunkPass]()
    passes: list[ChunkPass] = []
    for word in _words(rank, ranks, max(micro_batches, 2 * ranks)):
        if word == "W":
            passes.append(weights.pop(0))
            continue
        kind: Kind = "F" if word[0] == "F" else "I"
        chunk = int(word[1])
        passes.append((kind, chunk, done[kind, chunk]))
        if kind == "I":
            weights.append(("W", chunk, done[kind, chunk]))
        if word[0] == "B":
            passes.append(weights.pop())
        done[kind, chunk] += 1
    return [of_one for of_one in passes if of_one[2] < micro_batches]


def _words(rank: int, ranks: int, micro_batches: int) -> list[str]:
    further, own = ranks - 1 - rank, rank + 1
    phases = (
        (2 * further, "F0"),
        (own, "F0 F1"),
        (further, "I1 W F1"),
        (micro_batches - 2 * ranks + own, "F0 B1 F1 B0"),
        (further, "B1 F1 B0"),
    )
    drain = ["1", "0"] * own
    return [
        *(word for times, words in phases for word in words.split() * times),
        *("B" + chunk for chunk in drain[:own]),
        *("I" + chunk for chunk in drain[own:]),
        *["W", "I0"] * further,
        *["W"] * own,
    ]
