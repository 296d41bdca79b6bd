"""Formats of request traces, one file each; see `ndpsim.traces.request_format`."""
