"""Pipeline partitions: exact cuts of a chain of layers into stages, balanced by time or by memory.

``balance.py`` has the table of what stages can be balanced by; all else serves it.
"""
