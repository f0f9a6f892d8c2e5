"""Speed and memory side by side with PyTorch and others: ``python -m benchmarks``; docs/performance.md tells how."""
