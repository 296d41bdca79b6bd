"""Pictures of results, a module for each kind of result.

`canvas` has what all of them share: colours, figures and files; `bars` shows shares of time and energy,
`curves` what happens over time.
"""
