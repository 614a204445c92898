"""Interpreter of a rank's action list: passes of stages, blocks and operators."""
