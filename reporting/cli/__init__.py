"""The commands `report`, `ledger` and `erase`."""
