"""An example of a package with plug-ins for ndpsim."""
