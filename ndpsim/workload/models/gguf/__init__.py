"""Models from GGUF files: the header gives the shape, and every tensor with its format."""
