"""Jobs on shared resources, event by event: rates are constant between two events.

A job has work, counted in the ns that it takes alone, and a *speed*: the share of alone that it gets, from 0
to 1. Of a *shared resource* a job at full speed uses a share; several jobs may use one until it is saturated,
and one job many. An NDP unit computes one job at a time, which is slowed down by what the host and moving
experts transfer on its DIMM, as the cycle-level model found.

`sharing` says who gets what of a saturated resource, `speeds` how fast all jobs are, and `loop` runs jobs
with dependencies. All are kernels with a twin in plain Python among the tests (`tests/oracles/events.py`).
`state` has their arrays.
"""
