"""The report as a page, with its plots and figures as files."""
