"""Which layers each pipeline stage holds: exact cuts of a chain of layers, balanced by time or by memory.

``balance.py`` has the table of what stages can be balanced by; all else serves it.
"""
