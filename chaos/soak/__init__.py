"""A soak: long work with churn and faults, after which nothing may have grown."""
