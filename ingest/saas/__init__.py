"""What audit records of cloud services are made of."""
