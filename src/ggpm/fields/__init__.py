"""Fields: priors that tie the latents of all rows together."""
