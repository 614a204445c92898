"""Read Megatron-LM's log, also as Megatron-Bridge and Megatron-DeepSpeed print it.

Lines that are read, with the releases that print them in this form:

    iteration …/… | … elapsed time per iteration (ms): … | … global batch size: … |     v1.0 to core 0.19, by one rank
    … elapsed time per iteration (s): … |             BigScience's Megatron-DeepSpeed; (ms): now/mean | AMD's Primus
    [Rank …] (after … iterations) memory (MB) | … max allocated: … | … max reserved: …   v1.0 to core 0.19, MiB
    [Rank …] (after … iterations) memory (GB) | … mem-max-allocated-gigabytes: …         Megatron-Bridge, decimal GB
    ------------------------ arguments ------------------------                          v2.0 to core 0.19
      tensor_model_parallel_size ...................... 8                                 v2.0 to core 0.19
     > padded vocab (size: …) with … dummy tokens (new size: …)                           v2.0 to core 0.19
    Starting training loop at iteration …                                                 Megatron-Bridge 0.3

Source: NVIDIA/Megatron-LM, ``megatron/training/training.py`` (``training_log``), ``utils`` (``report_memory``),
``arguments.py`` (``_print_args``) at tags v1.0, v2.6, 23.06, core_v0.4.0 to core_v0.19.0; Megatron-Bridge 0.3.1,
``training/utils/train_utils.py``. The time is that of one iteration, averaged over the interval of the log.
"""

import re
from collections.abc import Iterator

from meshwright.ingestion.logs.events import Cells, Event, Restart, Setting, Settings, Step, duration, peak
from meshwright.ingestion.logs.lines import without_rank_marks
from meshwright.ingestion.logs.readers.megatron_columns import OPTIONS_READ, megatron_columns
from meshwright.units import GIGA, MIB, MILLISECOND

STEP = re.compile(
    r"iteration\s{1,12}(\d{1,12})/\s{0,12}\d{1,12} \|((?:(?!iteration\s+\d).){0,400}?)"
    r"elapsed time per iteration \((ms|s)\): (\d{1,12}(?:\.\d{1,6})?)(?:/[\d.]{1,19})? \|"
)
BATCH = re.compile(r"global batch size:\s{1,8}(\d{1,9}) \|")
AFTER = 400
"""Characters after the time within which the batch size occurs."""
MIB_PEAK = re.compile(r"\| (max allocated|max reserved): (\d{1,9}(?:\.\d{1,12})?)")
GB_PEAK = re.compile(r"\| mem-max-(allocated|reserved)-gigabytes: (\d{1,6}(?:\.\d{1,12})?)")
PADDED = re.compile(r"> padded vocab \(size: \d{1,9}\) with \d{1,9} dummy tokens \(new size: (\d{1,9})\)")
STARTS = ("------------ arguments ------------", "Starting training loop at iteration ")


class Megatron:
    """Reader of Megatron's training loop and argument table."""

    looked_for = "iteration 10/ 100 | … elapsed time per iteration (ms): 1234.5 |"

    def events(self, line: str) -> Iterator[Event]:
        """Yield steps, peaks of memory, arguments, starts."""
        if "elapsed time per iteration" in line:
            yield from _steps(line)
        if "memory (MB) |" in line or "memory (GB) |" in line:
            yield from _peaks(line)
        elif " .." in line:
            yield from _argument(line)
        elif "> padded vocab" in line and (match := PADDED.search(line)):
            yield Setting("padded vocab", match[1])
        elif any(mark in line for mark in STARTS):
            yield Restart()

    def cells(self, settings: Settings) -> Cells:
        """Return the columns of the argument table."""
        return megatron_columns(settings)


def _steps(line: str) -> Iterator[Event]:
    for match in STEP.finditer(line):
        seconds = duration(match[4], MILLISECOND if match[3] == "ms" else 1.0)
        batch = BATCH.search(line, match.end(), match.end() + AFTER)
        if seconds is not None:
            yield Step(iteration=int(match[1]), pace_s=seconds, batch=int(batch[1]) if batch else None)


def _peaks(line: str) -> Iterator[Event]:
    for pattern, unit_bytes in ((MIB_PEAK, MIB), (GB_PEAK, GIGA)):
        for kind, amount in pattern.findall(line):
            yield from peak(amount, unit_bytes, kind)


def _argument(line: str) -> Iterator[Event]:
    name, _, rest = without_rank_marks(line).strip().partition(" ")
    dots, _, value = rest.partition(" ")
    if name in OPTIONS_READ and dots.strip(".") == "":
        yield Setting(name, value.strip())
