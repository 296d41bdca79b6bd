"""Policies that nobody published, one file or folder each."""
