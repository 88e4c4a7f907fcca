"""Recordings that are posted over HTTP, whichever protocol asks: let in, kept on disk, heard, or refused."""
