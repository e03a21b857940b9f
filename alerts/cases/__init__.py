"""Cases: alerts that people work on together, and the evidence bundle that leaves the house."""
