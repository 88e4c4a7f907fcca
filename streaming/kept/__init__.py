"""What sessions said: as a log, as a transcript, on disk, and for those whom it concerns."""
