"""Policies: which engine computes which expert, and what moves meanwhile.

A policy sees frozen views of what its system could know at that moment and gives plain answers; the
orchestrator checks every answer and owns the time. `interface` says what it sees and what it answers; one
file in `published` is one policy.
"""
