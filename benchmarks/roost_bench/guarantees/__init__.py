"""What a shared cluster costs its tenants: sharing anomalies under quotas, and under cells."""
