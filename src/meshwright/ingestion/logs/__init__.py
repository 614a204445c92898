"""Convert logs of training runs to rows of a table that ``validate`` and ``calibrate`` read."""
