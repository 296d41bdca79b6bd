"""Models from GGUF files: the header gives the shape, and every tensor with its format."""

from ndpsim.workload.models.gguf.header import is_gguf
from ndpsim.workload.models.gguf.reader import load_gguf

__all__ = ["is_gguf", "load_gguf"]
