"""The HTTP route of Deepgram for recordings."""
