"""Models as SGLang should run them (`SGLANG_EXTERNAL_MODEL_PACKAGE`); needs sglang and torch."""
