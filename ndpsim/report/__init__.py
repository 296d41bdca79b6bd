"""Results as people want them: tables, pictures, timelines, traces."""
