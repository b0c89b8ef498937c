"""The front door for publishers: checks, packing, flow control and merged acknowledgements."""
