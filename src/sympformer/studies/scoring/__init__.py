"""What a trained model scores: on text, on probes, and as a run of a comparison."""
