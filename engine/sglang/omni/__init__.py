"""SGLang-Omni: another server than SGLang's own, in an environment of its own."""
