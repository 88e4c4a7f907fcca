"""One client's bytes: taken apart, decoded, brought to frames on the session's clock."""
