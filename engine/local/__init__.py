"""The embedded engine: CTranslate2 on this machine's cores."""
