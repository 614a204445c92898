"""Search plans whose layers differ in layout or recomputation."""
