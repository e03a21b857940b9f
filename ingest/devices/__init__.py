"""What logs of firewalls, sensors and other devices are made of."""
