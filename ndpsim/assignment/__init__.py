"""Kernels that share out the experts of a layer."""
