"""What reports ask of the tables, without their looks. Each takes the request and gives rows."""
