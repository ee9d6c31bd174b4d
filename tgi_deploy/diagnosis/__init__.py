"""The log reader: the state of an engine's start and what went wrong, as values. Pure.

The patterns are data (`profiles/engines/*/phases.json`, `profiles/diagnosis/`) in a `LogGrammar`.
"""
