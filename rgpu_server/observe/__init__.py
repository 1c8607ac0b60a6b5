"""What an operator sees: reports, metrics, health, the audit log."""
