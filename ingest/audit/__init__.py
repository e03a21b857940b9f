"""The Linux audit system: records, the events they make, and what PAM says through it."""
