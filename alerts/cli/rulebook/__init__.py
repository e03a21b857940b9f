"""Commands below `headgate rules` for who writes and keeps many rules."""
