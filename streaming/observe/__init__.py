"""What is told of the service while it runs: metrics, traces, log lines, health."""
