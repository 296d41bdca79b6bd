"""Formats of request traces, one file each; see `ndpsim.dram.traces.request_format`."""
