"""What every driver knows of a job: its record, its reports, its failures, how it is shown."""
