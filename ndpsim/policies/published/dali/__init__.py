"""DALI: `policy` is the policy, with the prediction of equations 10 and 11; `assignment` solves 3 to 9."""

from ndpsim.policies.published.dali.policy import POLICY
