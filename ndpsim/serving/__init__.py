"""Serving: requests arrive, a scheduler forms steps of them, and a machine runs these under a policy.

`ndpsim.serving.run.run_serving` does all of it. `asked` checks its arguments, `engine` has the loop, `kv`
the KV cache in blocks, `schedulers` one file for each scheduler, `steps` a step's layers on the machine.
"""
