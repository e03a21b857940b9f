"""What logs of server programs are made of: times, framing, what is large in one of them."""
