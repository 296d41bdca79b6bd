"""DALI: `policy` is the policy; `assignment` solves equations 3 to 9; `residual` predicts by 10 and 11."""

from ndpsim.policies.published.dali.policy import POLICY
