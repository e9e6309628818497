"""Decoding strategies, one a file: the file's name is the strategy's name in a config."""

SHARED = (  # files that are none
    "base",
    "candidates",
    "draws",
    "ensemble",
    "fixed",
    "grid",
    "processors",
    "recorded",
    "results",
    "rows",
)
