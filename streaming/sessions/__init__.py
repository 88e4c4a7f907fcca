"""Sessions at work: how they begin, live, decode, wait, come back and end, and whether one more fits."""
