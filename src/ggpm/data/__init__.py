"""Data at the door: arrays, frames and tables from users, and rows in chunks wherever they live."""
