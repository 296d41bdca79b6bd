"""What is computed: models, the routing of their tokens, and requests that arrive."""
