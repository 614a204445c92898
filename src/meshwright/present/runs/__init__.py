"""Text and figures of executed work: training, emulation, verification, measurement, calibration, validation."""
