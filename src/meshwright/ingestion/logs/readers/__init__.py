"""Readers of each framework's log lines.

``READERS`` lists them; if a log holds lines of several frameworks, the first one that fills a column counts.
``ingestion/logs/summary.py`` reads a log, ``ingestion/logs/run_row.py`` makes a row of it,
``ingestion/logs/run_table.py`` keeps the table.
"""

from meshwright.ingestion.logs.events import LogReader
from meshwright.ingestion.logs.readers.deepspeed import Deepspeed
from meshwright.ingestion.logs.readers.megatron import Megatron
from meshwright.ingestion.logs.readers.meshwright_runtime import Runtime
from meshwright.ingestion.logs.readers.nemo import Bridge, Nemo
from meshwright.ingestion.logs.readers.torchtitan import Torchtitan

READERS: dict[str, LogReader] = {
    "meshwright": Runtime(),
    "torchtitan": Torchtitan(),
    "megatron-bridge": Bridge(),
    "nemo": Nemo(),
    "megatron": Megatron(),
    "deepspeed": Deepspeed(),
}
