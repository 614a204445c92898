"""Read NeMo's logs: Megatron-Bridge, whose steps are in Megatron's lines too, and NeMo 2 and 1 with Lightning.

Lines that are read:

    Step Time : 5.39s GPU utilization: 2347.0MODEL_TFLOP/s/GPU              Bridge 0.1 to 0.6, by rank 0
    _target_: megatron.bridge.training.config.ConfigContainer               Bridge, ``print_yaml``: the configuration
      tensor_model_parallel_size: 4                                         Bridge, one key a line
      tensor_model_parallel_size: 4  (Mcore default: 1)                     Bridge 0.3 on, ``log_non_default_values``
    Training epoch 0, iteration 10/99 | … global_batch_size: 128 | … train_step_timing in s: 6.08 | …     NeMo 2
    … | max_memory_reserved: 127785762816 | max_memory_allocated: … | …                                 NeMo 2, bytes
    Epoch 0: :  47%|████▋     | 7/15 [06:19<07:13, …, train_step_timing in s=49.50]                     NeMo 1 and 2
    [NeMo I …] Rank 0 has tensor model parallel group: [0, 1]                                           NeMo 1 and 2

Source: NVIDIA-NeMo/Megatron-Bridge 0.3.1 and 0.6.0, ``training/utils/train_utils.py``, ``training/config.py``,
``training/utils/config_utils.py``; NVIDIA-NeMo/NeMo 2.5, ``lightning/pytorch/callbacks/progress_printer.py``,
``lightning/pytorch/strategies/megatron_strategy.py``, ``lightning/megatron_init.py``. A step's time of NeMo 2 is a mean
over the log's interval in four digits, of NeMo 1 the last one in three. Bridge prints no number of devices.
"""

import re
from collections.abc import Iterator

from meshwright.frameworks.importing.imported_file import Fact
from meshwright.ingestion.logs.events import Cells, Event, Restart, Setting, Settings, Step, duration, peak
from meshwright.ingestion.logs.lines import without_rank_marks
from meshwright.ingestion.logs.readers.megatron_columns import OPTIONS_READ, megatron_columns

BRIDGE_TIME = re.compile(r"Step Time : (\d{1,9}(?:\.\d{1,6})?)s GPU utilization: ")
CONTAINER = re.compile(r"_target_: megatron\.bridge\.[\w.]{1,80}ConfigContainer\s*$")
SUMMARY = "Configuration Summary (Non-Default Values vs Megatron Core)"
DEFAULT = "  (Mcore default: "
SEEN = "seen"
"""The setting that identifies the configuration's framework."""
TIME = r"train_step_timing in s[:=] ?(\d{1,9}(?:\.\d{1,6})?(?:e[+-]?\d{1,3})?)(?=[ |,\]]|$)"
PRINTED = re.compile(
    rf"Training epoch \d{{1,9}}, iteration (\d{{1,12}})/(?:(?!Training epoch ).){{0,2000}}?{TIME}"
)
BAR = re.compile(
    rf"Epoch \d{{1,9}}: [^\[]{{0,300}}?(\d{{1,12}})/\d{{1,12}} \[(?:(?!Epoch \d).){{0,2000}}?{TIME}"
)
BATCH = re.compile(r"global_batch_size: (\d{1,9})(?= \|)")
PEAK = re.compile(
    r"max_memory_(allocated|reserved)[:=] ?(\d{1,15}(?:\.\d{1,6})?(?:e\+?\d{1,3})?)(?=[ |,\]]|$)"
)
GROUP = re.compile(
    r"Rank \d{1,7} has (data parallel|context parallel|tensor model parallel|pipeline model parallel"
    r"|expert model parallel) group ?: \[([\d, ]{1,200000})\]"
)
DEGREES = {
    "data parallel": "dp",
    "context parallel": "cp",
    "tensor model parallel": "tp",
    "pipeline model parallel": "pp",
    "expert model parallel": "ep",
}


class Bridge:
    """Reader of Megatron-Bridge's own lines: times without an iteration, and the configuration."""

    looked_for = "Step Time : 5.39s GPU utilization: 2347.0MODEL_TFLOP/s/GPU"

    def events(self, line: str) -> Iterator[Event]:
        """Yield steps, options, starts."""
        if "Step Time : " in line:
            for match in BRIDGE_TIME.finditer(line):
                seconds = duration(match[1])
                if seconds is not None:
                    yield Setting(SEEN, "Step Time")
                    yield Step(iteration=None, pace_s=seconds)
        elif SUMMARY in line or ("_target_: megatron.bridge." in line and CONTAINER.search(line)):
            yield Restart()
            yield Setting(SEEN, "the configuration")
        else:
            yield from _option(line)

    def cells(self, settings: Settings) -> Cells:
        """Return the columns of a Megatron-Bridge configuration; none if nothing identifies it as one."""
        if SEEN not in settings:
            return {}
        return megatron_columns(settings) | {
            "stack": Fact("megatron-bridge", f"{settings[SEEN]} of Megatron-Bridge")
        }


class Nemo:
    """Reader of Lightning's lines as NeMo prints them."""

    looked_for = "Training epoch 0, iteration 10/99 | … train_step_timing in s: 6.08 |"

    def events(self, line: str) -> Iterator[Event]:
        """Yield steps, peaks of memory, groups of ranks, starts."""
        if "train_step_timing in s" in line:
            yield from _steps(line)
        if "max_memory_" in line:
            for kind, amount in PEAK.findall(line):
                yield from peak(amount, 1, kind)
        elif " parallel group" in line and (match := GROUP.search(line)):
            yield Setting(SEEN, "groups of ranks")
            yield Setting(DEGREES[match[1]], str(match[2].count(",") + 1))
        elif "GPU available: True" in line:
            yield Restart()

    def cells(self, settings: Settings) -> Cells:
        """Return the degrees of the groups of ranks."""
        if SEEN not in settings:
            return {}
        degrees = {column: settings[column] for column in DEGREES.values() if column in settings}
        found = {column: Fact(size, f"groups of {size} ranks") for column, size in degrees.items()}
        return found | {"stack": Fact("nemo", f"{settings[SEEN]} of NeMo")}


def _option(line: str) -> Iterator[Event]:
    """Yield a configuration key and its value on the same line; the value is empty if a list follows below."""
    name, colon, rest = without_rank_marks(line).partition(":")
    if colon and name.strip() in OPTIONS_READ:
        yield Setting(name.strip(), rest.partition(DEFAULT)[0].strip().strip("'\""))


def _steps(line: str) -> Iterator[Event]:
    for pattern in (PRINTED, BAR):
        for match in pattern.finditer(line):
            seconds = duration(match[2])
            batch = BATCH.search(line, match.start(), match.end())
            if seconds is not None:
                yield Setting(SEEN, "steps")
                yield Step(iteration=int(match[1]), pace_s=seconds, batch=int(batch[1]) if batch else None)
