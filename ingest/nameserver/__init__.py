"""What logs of name servers are made of."""
