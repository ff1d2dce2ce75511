"""What an administrator asks of a cluster: what is wrong with it, and how definitions change."""
