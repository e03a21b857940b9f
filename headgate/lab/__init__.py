"""A benign day of a small site: raw logs of several products, with the truth and what to ask.

It is generated, the same for the same seed, after forms that products really write; Windows'
background alone is recorded (samples/lab/NOTICE.md). Nothing in it is an attack, and much looks
like one. A product is measured by whom it says an address belonged to, and by how many alerts
it raises for nothing.
"""
