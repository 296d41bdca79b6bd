"""Comparisons with other simulators, if they are installed."""
