"""Policies of published systems, and bounds to hold them against: one file each."""
