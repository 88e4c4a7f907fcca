"""Connections: those who speak, those who read, and those who are led on to another process."""
