"""Schedulers of serving engines, one file each."""
