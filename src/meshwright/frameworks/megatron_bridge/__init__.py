"""Megatron-Bridge: its option names by release, importing its files and exporting plans to it."""
