"""Sweeps: a command is run at many points, with its results in one table."""
