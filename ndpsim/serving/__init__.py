"""Serving: requests arrive, a scheduler forms steps of them, and a machine runs these under a policy.

`ndpsim.serving.run.run_serving` does all of it. `asked` checks its arguments, `server` is what several rates
have in common, `engine` has the loop, `shared_room` is what blocks share with experts, `kv` is
the KV cache in blocks, `schedulers` one file for each scheduler, `steps` a step's layers on the machine.
"""
