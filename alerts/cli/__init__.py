"""The commands about rules and alerts. Thin: they parse arguments, call a package, print."""
