"""Who is speaking inside a window, and a vector for each voice: two networks on the CPU, no torch."""
