"""Claims of papers as data: what is published, the runs that give ours, and how far apart they may be."""
