"""Context-aware CXL-NDP: `policy` is the policy, with the bits of experts (PrefixSplit); `quantisation` reads losses."""

from ndpsim.policies.published.cxl.policy import POLICY
