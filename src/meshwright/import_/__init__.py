"""Other people's files as plans. ``SOURCES`` lists the formats that ``import`` and ``check`` read."""
