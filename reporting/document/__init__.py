"""What every report is made of: tiles, words, tables and charts, in HTML, PDF, JSON and CSV.

A report says what there is to see; how it looks and in which forms it is kept is decided here.
"""
