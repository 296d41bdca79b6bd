"""Errors, units, files, caches, compiled kernels and options: what every other package builds on."""
