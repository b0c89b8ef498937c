"""The process for publishers: checks, packing, flow control and merged acknowledgements."""
