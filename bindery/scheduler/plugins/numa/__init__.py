"""numa: predicts whether nodes can align pods to their NUMA zones, and with which zones."""
