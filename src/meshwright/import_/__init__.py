"""Other people's files as plans. ``FORMATS`` of ``formats.py`` lists the formats that ``import`` and ``check`` read."""
