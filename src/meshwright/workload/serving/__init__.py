"""The workload of serving: lengths of requests, load, limits on latency."""
