"""Logs of training runs as rows of a table that ``validate`` and ``calibrate`` read.

``READERS`` lists what can be read; where several frameworks speak in one log, the first that fills a column counts.
``summary.py`` reads a log, ``row.py`` makes a row of it, ``table.py`` keeps the table.
"""

from meshwright.import_.logs.deepspeed import Deepspeed
from meshwright.import_.logs.events import LogReader
from meshwright.import_.logs.megatron import Megatron
from meshwright.import_.logs.nemo import Bridge, Nemo
from meshwright.import_.logs.runtime import Runtime
from meshwright.import_.logs.torchtitan import Torchtitan

READERS: dict[str, LogReader] = {
    "meshwright": Runtime(),
    "torchtitan": Torchtitan(),
    "megatron-bridge": Bridge(),
    "nemo": Nemo(),
    "megatron": Megatron(),
    "deepspeed": Deepspeed(),
}
