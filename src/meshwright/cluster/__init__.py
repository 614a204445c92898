"""The cluster noun: devices, nodes, links, prices and failures, with their sources."""
