"""Formats of configurations, one file each; see `config.importers.configuration.ConfigurationFormat`."""
