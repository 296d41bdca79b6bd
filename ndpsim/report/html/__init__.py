"""Reports as one HTML file each: tables that sort, pictures that zoom, configuration and provenance.

A report needs nothing but itself: no network, which its content security policy forbids, and no script to be
read. `runs`, `moe` and `sweeps` say what stands in it, as data of `parts`; `page` fills the templates with
it. Equal results are equal files: there is no date, host or wall time.
"""
