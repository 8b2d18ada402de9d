"""Fields: how the latents of all rows hang together."""
