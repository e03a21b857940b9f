"""What we are built of: bill of materials, known vulnerabilities, what was accepted and why.

Stands beside the jobs: nothing imports it but its own command.
"""
