"""Cases: worked on, and taken away as evidence."""
