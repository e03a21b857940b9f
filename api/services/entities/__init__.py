"""What is known of an address, a device, a user, a host or a domain; and what is called so."""
