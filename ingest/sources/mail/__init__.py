"""Mail servers: Postfix and Dovecot."""
