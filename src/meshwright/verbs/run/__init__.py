"""The verb ``run``: train a plan or emulate its step, with checks before the start."""
