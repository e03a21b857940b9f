"""What logs of web servers and proxies are made of: requests, access logs, findings."""
