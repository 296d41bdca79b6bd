"""The oracle: `policy` chooses runs and places experts; `improvement` and `moves` change runs."""

from ndpsim.policies.own.oracle.policy import POLICY
