"""Reports as one HTML file each: tables that sort, pictures that zoom, configuration and provenance.

A report is self-contained: its content security policy forbids network access, and it is readable without
scripts. `runs` and `sweeps` define its contents as parts of `page`, which fills the templates.
Equal results give equal files, without date, host or wall time.
"""
