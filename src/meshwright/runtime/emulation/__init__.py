"""Emulate a step: compute is slept, and messages carry their arrival times.

Tests the interpreter against the simulator.
"""
