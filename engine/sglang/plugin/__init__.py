"""What SGLang loads into its own processes (`SGLANG_EXTERNAL_MM_PROCESSOR_PACKAGE`): our front ends.

Needs sglang and torch, which the rest of the project does not: nothing outside this package and `models`
imports it. SGLang imports every module here and keeps each processor class that a module defines itself.
"""
