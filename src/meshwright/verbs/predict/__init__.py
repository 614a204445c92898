"""The verb ``predict``: step time, memory, goodput and training cost of one plan."""
