"""Serving: requests arrive, a scheduler forms steps of them, and a machine runs these under a policy.

`server.run_serving` is the entry. `asked` finds what its settings name, and `server` sets a machine up for
several rates. `engine` is the loop. `kv` has the KV cache in blocks, and the memory that it shares with
experts. Each file of `schedulers` is a scheduler. `steps` runs the layers of a step on the machine.
"""
