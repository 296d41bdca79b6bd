"""Policies of published systems, one file or folder each."""
