"""Readers of published data sets and common file formats."""
