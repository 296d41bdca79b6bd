"""Serving: requests arrive, a scheduler forms steps of them, and a machine runs these under a policy.

`ndpsim.inference.serving.run.run_serving` is the entry. `asked` checks its arguments, `server` is the setup
for several rates, `engine` the loop, `kv` the KV cache in blocks, `shared_room` the memory that blocks share
with experts, `schedulers` has a file for each scheduler, and `steps` runs the layers of a step on the
machine.
"""
