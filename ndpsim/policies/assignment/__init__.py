"""Kernels that assign the experts of a layer to engines."""
