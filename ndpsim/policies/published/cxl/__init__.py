"""Context-aware CXL-NDP: `policy` is the policy, and chooses bits of experts; `quantisation` reads losses."""

from ndpsim.policies.published.cxl.policy import POLICY
