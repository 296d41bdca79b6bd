"""Policies of this project that no paper describes, one file or folder each."""
