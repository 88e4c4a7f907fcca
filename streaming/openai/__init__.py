"""The HTTP routes of OpenAI for recordings: transcriptions and the list of models."""
