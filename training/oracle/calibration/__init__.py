"""Calibration: seconds of blocks, links and updates, measured on a machine."""
