"""Layers of mixture-of-experts models, their events, serving under load, processors and predictions."""
