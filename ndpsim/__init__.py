"""Cycle-level simulation of DRAM and near-data processing for mixture-of-experts models.

>>> import ndpsim
>>> result = ndpsim.simulate_expert("trimoe", "qwen3-235b-a22b", tokens=1)
>>> result.weight_bytes, result.bound
(37748736, 'memory')

What the command line does, as calls:

- ``gemv``: `simulate_expert`; with host traffic `simulate_contention`; by the host `simulate_host_read`.
- Units in banks: ``pim``: `run_pim`; ``gemv --hw aim``: `simulate_bank_expert`; ``attention``:
  `simulate_bank_attention`; ``check``: `check_units`; ``compare banks``:
  `ndpsim.studies.banks.compare_banks`.
- ``relayout``: `simulate_relayout`. ``dram``: `run_trace`, or `read_requests`, `Memory` and `run_requests`;
  `sweep_load`. ``check``: `read_commands` and `check`, or `check_lanes`; `check_schedule`; `check_serving`.
  `Probe` gives the first clock of a command, and the rule that binds.
- ``show`` and ``list``: `load_hardware`, `load_model`, `place_expert`, `load_processors`, `hardware_names`,
  `model_names`, `weight_file`, `weight_names`, `resolve`. ``import``: `import_hardware`.
- ``routing``: `generate_routing`, `import_routing`, `describe_routing`; `load_routing` and `Routing.save`.
- ``requests``: `generate_requests`, `import_requests`, `describe_requests`, `compare_measured`;
  `load_requests` and `save_requests`.
- ``moe``: `run_moe`; `check_policy` checks a policy of your own.
- ``serve``: `run_serving`, and `find_rate` for the highest rate within a service level.
- ``sweep``: `sweep`, of a command at many points. ``optimize``: `optimize`, for the best of them.
- ``cache=True`` or ``cache=ResultCache(...)`` reuses results of earlier calls; ``cache`` shows their folders.
- Pictures: `ndpsim.report.pictures`. Energy of a command trace: `ndpsim.energy.from_trace`. ``bench``:
  `ndpsim.studies.bench.run_rows`. ``compare ramulator``: `ndpsim.studies.ramulator.compare`.

A mistake in an argument is an `InputError`, whose `key` names the argument. A check that finds a difference
between two computations of the same result raises `MismatchError`.
"""

# Imported when first used: importing Numba and pydantic is slow, and not every use needs them.
from ndpsim.base._later import from_stub as _from_stub

__getattr__, __dir__, __all__ = _from_stub(__name__)
