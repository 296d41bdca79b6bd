"""Formats of configurations, one file each; see `ndpsim.importers.configuration.ConfigurationFormat`."""
