"""The orchestrator: layers of a model on the engines of a machine, under a policy, event by event."""
