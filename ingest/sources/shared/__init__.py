"""What several families have in common: access logs, DNS answers, device headers, key=value texts.

No sources of its own; every family may import it.
"""
