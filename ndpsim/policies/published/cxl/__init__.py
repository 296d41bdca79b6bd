"""Context-aware CXL-NDP: `policy` is the policy; `prefix_split` chooses bits by a table of losses."""

from ndpsim.policies.published.cxl.policy import POLICY
