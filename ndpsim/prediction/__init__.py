"""How fast a machine that someone owns is with a model, and what would make it faster."""

from ndpsim.prediction.predict import predict

__all__ = ["predict"]
