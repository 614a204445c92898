"""Shared parts of all exporters: the uniform plan, the exported files, common limits."""
