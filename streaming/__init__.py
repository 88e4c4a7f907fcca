"""The live transcription service."""
