"""The pure core: no await, clock, thread, log or environment. Time is a sample index."""
