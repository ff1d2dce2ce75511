"""What each part of the default policy brings, on jobs that are mixed."""
