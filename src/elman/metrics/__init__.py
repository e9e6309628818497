"""Metrics, one a file: the file's name is the metric's name in a config."""

# What tasks count and report by themselves
SHARED = ("base", "calibration", "classification", "sequences", "spans", "translation")
