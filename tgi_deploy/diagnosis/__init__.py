"""One log reader: where the engine's start stands and what went wrong, as values. Pure; imports nothing but errors.

The texts come from data (`profiles/engines/*/phases.json`, `profiles/diagnosis/`) inside a `LogGrammar`.
"""
