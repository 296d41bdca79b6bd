"""Reports of results: texts, tables, pictures, timelines and HTML."""
