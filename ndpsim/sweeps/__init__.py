"""Runs of runs: a command at many points, its results in one table."""
