"""Several processes, on one machine or many, as one server: what they share, and who has which session."""
