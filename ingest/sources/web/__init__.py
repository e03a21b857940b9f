"""Web servers and proxies: Apache, nginx, IIS, HAProxy, Squid, ModSecurity."""
