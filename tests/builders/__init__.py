"""Devices, machines, requests, runs and sweeps that several tests share."""
