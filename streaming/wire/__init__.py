"""Messages and codecs of the wire protocols. Pure."""
