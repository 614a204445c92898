"""Published failure rates of nodes, for the few devices with one.

Only a rate that was measured on the same device family is used; for every other device the answer is None.
The counts differ in scope (all interruptions, or device errors only): see the table's notes.
"""

from meshwright.cluster.catalog import device_id
from meshwright.cluster.cluster import Sourced
from meshwright.cluster.data_tables import read_table


def usual_failures(name: str) -> Sourced | None:
    """Return the failures per 1000 node-days of nodes with this device, with the source; None if unknown."""
    known = device_id(name)
    for row in read_table("reliability"):
        if known in row["usual_for"].split():
            source = f"{row['system']}, {row['devices']} devices: {row['source']} ({row['confidence']})"
            events = int(row["failures"]) if row["failures"] else None
            return Sourced(float(row["failures_per_1000_node_days"]), source, row["date"], events=events)
    return None
