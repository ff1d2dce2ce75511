"""Jobs that share GPUs: Harmony's and Gandiva's benchmarks, on measured pairs."""
