"""Reports as one HTML file each: tables that sort, pictures that zoom, configuration and provenance.

A report needs nothing but itself: no network, which its content security policy forbids, and no script to be
read. `page` puts it together, `tables`, `svg`, `style` and `script` are its parts, `runs`, `moe` and `sweeps`
say what stands in it. Equal results are equal files: there is no date, host or wall time.
"""
